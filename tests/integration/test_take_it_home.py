"""A trained model leaves its run: exported, joined from two places, asked in two places, by real commands."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
import torch
from fleet import free_port
from network import SMALL, trained_over_loopback
from PIL import Image
from processes import Ended, Launcher
from small_runs import run_of

import gapsl
from gapsl.common.errors import InputError
from gapsl.device.build import limited_to
from gapsl.network.tls.authority import Authority
from gapsl.run.api import compose
from gapsl.run.folder import RunFolder
from gapsl.run.records import RunResult

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    """A run over the network with certificates beside it: the server's folder, and the devices' states."""
    folder = tmp_path_factory.mktemp("fleet")
    authority = Authority.create(folder / "certs")
    authority.issue("server", ["localhost"])
    authority.issue("device-1")
    authority.issue("stranger")
    return folder, trained_over_loopback(compose(words={**SMALL, "method": "psl"}), folder)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    for index, image in enumerate(gapsl.load_source("digits").test.read(torch.arange(3))[:, 0]):
        Image.fromarray((image * 255).round().to(torch.uint8).numpy()).save(folder / f"{index}.png")
    return folder


def state_of(folder: Path, device: str) -> Path:
    (found,) = (folder / "state").glob(f"*/{device}")
    return found


def test_parts_of_a_fleet_are_joined_to_the_model_that_was_evaluated(
    fleet: tuple[Path, RunResult], tmp_path: Path
) -> None:
    folder, result = fleet
    (server,) = gapsl.export(folder / "run", tmp_path / "server")
    (device,) = gapsl.export(state_of(folder, "device-1"), tmp_path / "device")
    assert (server.files, device.files) == (("server.safetensors",), ("client.safetensors",))
    (whole,) = gapsl.export(tmp_path / "server", tmp_path / "model", join=tmp_path / "device")
    assert whole.note == ""
    (again,) = gapsl.export(folder / "run", tmp_path / "same", join=state_of(folder, "device-1"))
    assert again.files == ("client.safetensors", "server.safetensors", "model.safetensors")
    config, _ = RunFolder(folder / "run").config()
    test = limited_to(config, gapsl.load_source("digits")).test
    for export in ("model", "same"):
        model = gapsl.load(tmp_path / export)
        right = model.predict(test.read(torch.arange(len(test)))).argmax(dim=1) == test.labels
        assert float(right.double().mean()) == result.final.device_accuracy[1]


def test_devices_keep_what_their_model_needs(fleet: tuple[Path, RunResult]) -> None:
    folder, _ = fleet
    said = [
        json.loads((place / "model.json").read_text())
        for place in (folder / "run", state_of(folder, "device-2"))
    ]
    assert said[0] == said[1]
    assert said[0]["mean"] == [0.3054]


def assert_refused(ended: Ended, *words: str, code: int = 2) -> None:
    assert ended.code == code, ended.stderr or ended.stdout
    assert "Traceback" not in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("error: "), ended.stderr
    for word in words:
        assert word in ended.stderr


def test_what_cannot_be_exported_is_refused_by_the_command(
    cli: Launcher, fleet: tuple[Path, RunResult], tmp_path: Path
) -> None:
    folder, _ = fleet
    out = tmp_path / "out"
    assert_refused(
        cli.run("export", folder / "run", "--client", "1", "--out", out), "with its devices", "--join"
    )
    assert_refused(cli.run("export", folder / "state", "--out", out), "several devices; choose one")
    assert_refused(cli.run("export", tmp_path, "--out", out), "neither a run", "nor an export")
    assert_refused(cli.run("export", "--out", out), "give a run's folder, or two parts with --join")
    old = FIXTURES / "network" / "state"
    (device,) = old.glob("*/device-0")
    assert_refused(cli.run("export", device, "--out", out), "older gapsl", "copy model.json")
    run, state = folder / "run", state_of(folder, "device-0")
    assert_refused(cli.run("export", "--join", state, run, "--out", out), "in this order; swap")
    assert_refused(cli.run("predict", run, tmp_path), "server-side model alone", "--join")
    assert_refused(
        cli.run("predict", run_of("psl"), tmp_path / "x.png", "--format", "xml"), "unknown --format 'xml'"
    )
    assert not out.exists()


def test_an_old_devices_state_is_exported_with_its_runs_description(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "network", tmp_path / "network")
    with pytest.raises(InputError, match="--raw-inputs is for a joined model"):
        gapsl.export(tmp_path / "network" / "run", tmp_path / "raw", format="torch", raw_inputs=True)
    gapsl.export(tmp_path / "network" / "run", tmp_path / "server")
    (device,) = (tmp_path / "network" / "state").glob("*/device-0")
    said = json.loads((tmp_path / "server" / "export.json").read_text())["model"]
    (device / "model.json").write_text(json.dumps(said))
    gapsl.export(tmp_path / "server", tmp_path / "model", join=device)
    assert gapsl.load(tmp_path / "model").predict(torch.rand(1, 8, 8)).shape == (1, 10)


def test_images_are_predicted_by_a_command(cli: Launcher, images: Path, tmp_path: Path) -> None:
    run = run_of("psl")
    done = cli.run("export", run, "--client", "1", "--out", tmp_path / "model")
    assert done.code == 0, done.stderr
    assert "client 1" in done.stdout and "measured again" in done.stdout
    shown = cli.run("predict", tmp_path / "model", images, "--format", "json", "--top", "2")
    assert shown.code == 0, shown.stderr
    rows = json.loads(shown.stdout)
    assert [Path(row["image"]).name for row in rows] == ["0.png", "1.png", "2.png"]
    assert [len(row["classes"]) for row in rows] == [2, 2, 2]
    lines = cli.run("predict", run, images / "0.png", "--client", "1", "--format", "csv").stdout.splitlines()
    assert lines[0] == "image,class_1,probability_1,class_2,probability_2,class_3,probability_3"
    best = rows[0]["classes"][0]
    name, probability = lines[1].split(",")[1:3]
    assert (name, float(probability)) == (best["class"], pytest.approx(best["probability"], abs=1e-5))
    assert best["class"] in cli.run("predict", run, images / "0.png", "--client", "1").stdout


def test_a_model_is_asked_in_two_places_with_the_certificates_of_training(
    cli: Launcher, fleet: tuple[Path, RunResult], images: Path, tmp_path: Path
) -> None:
    folder, _ = fleet
    port, certs, state = free_port(), folder / "certs", state_of(folder, "device-1")
    serving = cli.start("serve-model", folder / "run", "--listen", f"localhost:{port}", "--certs", certs)
    try:
        assert serving.until(lambda: "mutual TLS" in serving.stderr, "the server"), serving.stderr
        asked = (
            "predict",
            state,
            images,
            "--server",
            f"localhost:{port}",
            "--certs",
            certs,
            "--format",
            "json",
        )
        found = cli.run(*asked, "--name", "device-1")
        assert found.code == 0, found.stderr
        gapsl.export(folder / "run", tmp_path / "model", join=state)
        joined = cli.run("predict", tmp_path / "model", images, "--format", "json")
        assert json.loads(found.stdout) == json.loads(joined.stdout)
        assert_refused(cli.run(*asked, "--name", "stranger"), "'stranger' is not a device of this run")
    finally:
        serving.signal(signal.SIGTERM)
        assert serving.wait().code == 143
