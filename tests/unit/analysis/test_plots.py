"""Pictures of runs: of any length and number, in the formats asked for, and what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_results import result

import gapsl
from gapsl.analysis.looks import LOOKS, shade
from gapsl.analysis.plots import confusion_picture, course, curves, draw_runs, mean_angles
from gapsl.analysis.runs import RunSummary, grouped, varying
from gapsl.analysis.tables import title
from gapsl.run.config import make_config
from gapsl.run.folder import RunFolder
from gapsl.run.records import Angles, RoundRecord, RunResult

FIXTURES = Path(__file__).parents[2] / "fixtures"
pytestmark = pytest.mark.filterwarnings("error")


def drawn(*runs: RunResult | RunSummary):
    """The axes of the curves of these runs."""
    groups = grouped(RunSummary.of(run) if isinstance(run, RunResult) else run for run in runs)
    names = varying(groups)
    figure = curves(groups, names, title(groups, names))
    assert not isinstance(figure, str)
    figure.canvas.draw()
    return figure.axes[0]


def legend(axes) -> list[str]:
    return [text.get_text().replace("\n", " ") for text in axes.get_legend().get_texts()]


def test_runs_of_different_length_and_unfinished_ones_are_drawn_together() -> None:
    half = RunSummary.read(RunFolder(FIXTURES / "unfinished"))
    axes = drawn(result("psl", 0, 0.3), result("psl", 0, 0.4, rounds=10), result("sfl", 0, 0.5), half)
    assert [name for name in legend(axes) if name.startswith("PSL")] == [
        name for name in legend(axes) if "rounds 40" in name or "rounds 10" in name
    ][:2]
    assert any(f"round {half.done} of {half.total}" in name for name in legend(axes))


def test_seeds_have_a_band_of_their_standard_deviation_and_the_picture_says_so() -> None:
    axes = drawn(*(result("psl", seed, 0.4 + seed / 10) for seed in range(3)))
    assert "± standard deviation over seeds" in legend(axes)
    assert axes.get_title() == "digits, small, 2 devices, dirichlet:0.1, 40 rounds, seeds 0, 1, 2"
    band = axes.collections[0].get_paths()[0].vertices
    at_the_end = band[np.isclose(band[:, 0], 40)][:, 1]
    assert (at_the_end.min(), at_the_end.max()) == pytest.approx((40, 60))


def test_a_single_seed_has_a_band_from_the_worst_to_the_best_device() -> None:
    assert "worst to best device" in legend(drawn(result("psl", 0, 0.4), result("sfl", 0, 0.4)))


def test_the_ensemble_is_explained_only_where_it_is_drawn() -> None:
    assert "ensemble of the devices" in legend(drawn(result("psl", 0, 0.4)))
    alone = RunSummary.of(result("psl", 0, 0.4))
    same = [replace(e, ensemble=None) for e in alone.history]
    axes = drawn(replace(alone, history=tuple(same)))
    assert "ensemble of the devices" not in legend(axes), "devices with own tests have none"


def test_a_method_has_its_colour_and_name_everywhere_and_variants_its_shades() -> None:
    axes = drawn(result("gapsl", 0, 0.4), result("psl", 0, 0.4), result("psl", 0, 0.4, model="mlp"))
    lines = {line.get_label().replace("\n", " "): line.get_color() for line in axes.get_lines()}
    assert lines["GAPSL, model small"] == LOOKS["gapsl"].colour
    assert lines["PSL, model small"] == LOOKS["psl"].colour
    assert lines["PSL, model mlp"] == shade(LOOKS["psl"].colour, 1) != LOOKS["psl"].colour


def test_seeds_whose_evaluations_are_not_as_many_are_drawn_as_far_as_all_are() -> None:
    short = RunSummary.of(result("psl", 0, 0.4))
    long = RunSummary.of(result("psl", 1, 0.4))
    (group,) = grouped([replace(short, history=short.history[:2]), long])
    rounds, values = course(group, "device_mean")
    assert rounds.tolist() == [10, 20]
    assert values.shape == (2, 2)


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_pictures_are_files_of_the_kind_asked_for_and_the_same_each_time(tmp_path: Path, kind: str) -> None:
    runs = [RunSummary.read(RunFolder(FIXTURES / "comparison" / name)) for name in ("psl-seed0", "sfl-seed0")]
    said = list(draw_runs(tmp_path, runs, [kind]))
    assert said == [
        *(f"drawn: {tmp_path / name}.{kind}" for name in ("curves", "labels", "angles")),
        "not drawn: confusion (no run has stored which class is taken for which)",
    ]
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    list(draw_runs(tmp_path, runs, [kind]))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind]
    assert all(content.startswith(start) for content in before.values())


def test_panels_are_named_at_the_edges_and_a_class_without_samples_has_no_share() -> None:
    groups = grouped(RunSummary.of(result(name, 0, 0.4)) for name in ("psl", "sfl", "gapsl", "epsl"))
    panels = confusion_picture(groups, [], "").axes[:4]  # two rows of two
    assert [(axes.get_xlabel(), axes.get_ylabel()) for axes in panels] == [
        ("", "true"), ("", ""), ("predicted", "true"), ("predicted", ""),
    ]  # fmt: skip
    shares = panels[0].get_images()[0].get_array()
    assert shares[:2].tolist() == [[80, 20, 0], [10, 90, 0]]
    assert shares.mask[2].all(), "nothing is known of the third class"


def test_what_cannot_be_drawn_is_said_and_no_error(tmp_path: Path) -> None:
    said = list(draw_runs(tmp_path, [RunSummary.of(result("psl", 0, 0.4))]))
    assert said[1] == "not drawn: labels (the run has no files)"
    assert said[3] == f"drawn: {tmp_path}/confusion.png"
    folder = RunFolder.create(tmp_path / "run", make_config({"rounds": 5}), {})
    said = list(draw_runs(tmp_path, [RunSummary.read(folder)]))
    assert all(line.startswith("not drawn: ") for line in said)


def test_other_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(gapsl.InputError, match="pictures can be png, svg, pdf, not gif"):
        list(draw_runs(tmp_path, [RunSummary.of(result("psl", 0, 0.4))], ["png", "gif"]))


# --- angles


def record(present: tuple[int, ...], angle: float | None) -> RoundRecord:
    angles = None if angle is None else Angles(devices=present, above=((angle,), ()))
    nothing = dict.fromkeys(range(3), 0)
    return RoundRecord(
        round=1, epoch=1.0, loss=1.0, losses=dict.fromkeys(present, 1.0), bytes_sent=nothing,
        bytes_received=nothing, seconds={}, angles=angles,
    )  # fmt: skip


def test_angles_are_averaged_over_the_rounds_in_which_both_devices_took_part() -> None:
    found = mean_angles([record((0, 2), 1.0), record((0, 2), 2.0)])
    assert found is not None
    assert found[0, 2] == found[2, 0] == 1.5
    assert np.isnan(found[0, 1])
    assert np.isnan(found[0, 0]), "a device has no angle to itself"


def test_without_angles_there_is_nothing_to_draw() -> None:
    assert mean_angles([record((0, 2), None)]) is None
