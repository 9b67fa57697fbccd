"""An observer of your own: it hears of every round and writes the losses to a file of the run's folder.

`gapsl train --plugin examples/own_observer.py --set observers=[losses] --out runs/a`
"""

from __future__ import annotations

import gapsl


class Losses(gapsl.Observer):
    """Adds a line per round to losses.csv."""

    def round(self, record: gapsl.RoundRecord) -> None:
        """Hear of a round that is done."""
        if self.folder is not None:  # the run keeps files
            with (self.folder / "losses.csv").open("a", encoding="utf-8") as file:
                file.write(f"{record.round},{record.loss}\n")


gapsl.register_observer("losses", Losses)


def main() -> None:
    """Train with it from Python."""
    result = gapsl.train(
        method="psl", model="mlp", devices=4, rounds=60, partition="dirichlet:0.5",
        device_optimizer={"lr": 0.2}, server_optimizer={"lr": 0.2}, observers=["losses"],
        out="runs/own-observer",
    )  # fmt: skip
    assert result is not None
    print(f"psl: {100 * result.final.device_mean:.1f} %; losses: runs/own-observer/losses.csv")


if __name__ == "__main__":
    main()
