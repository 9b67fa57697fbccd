"""Exports hold the trained model to the bit, say what they are, and appear whole or not at all."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from small_runs import copy_of, run_of

import gapsl
from gapsl.common.errors import InputError, Unavailable
from gapsl.inference import export as exporting
from gapsl.models import build_model
from gapsl.run.folder import RunFolder

CLIENTS = [("psl", 1), ("psl", "merged"), ("psl", "ensemble"), ("sfl", "merged"), ("vanilla", 2)]


def logits(model: gapsl.SplitModel) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        return model(model.preprocess(torch.rand(4, 1, 8, 8, generator=generator)))


@pytest.mark.parametrize(("method", "client"), CLIENTS)
def test_an_export_is_lossless_and_needs_no_run(method: str, client: int | str, tmp_path: Path) -> None:
    run = run_of(method)
    (done,) = gapsl.export(run, tmp_path / "model", client=client)
    assert (done.folder, done.client, done.apart, done.evaluated) == (
        tmp_path / "model",
        str(client),
        0,
        True,
    )
    loaded = gapsl.load(tmp_path / "model")
    assert torch.equal(logits(loaded), logits(gapsl.load(run, client)))
    assert loaded.classes == tuple("0123456789")


def test_an_export_says_what_it_is(tmp_path: Path) -> None:
    run = run_of("psl")
    gapsl.export(run, tmp_path / "model", client=2)
    said = json.loads((tmp_path / "model" / "export.json").read_text())
    assert (said["format"], said["client"], said["method"], said["round"]) == ("safetensors", "2", "psl", 40)
    assert said["accuracy"] == RunFolder(run).result().final.device_accuracy[2]
    assert (said["model"]["cut"], said["model"]["mean"], said["run"]) == (1, [0.3054], run.name)
    assert (said["gapsl"], said["torch"]) == (gapsl.__version__, torch.__version__)
    assert sorted(said["files"]) == ["client.safetensors", "model.safetensors", "server.safetensors"]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == sorted(
        [*said["files"], "export.json"]
    )


def test_the_joined_file_has_the_uncut_models_names(tmp_path: Path) -> None:
    gapsl.export(run_of("psl"), tmp_path / "model", client=0)
    parts = build_model("mlp", classes=10, input_shape=(1, 8, 8), width=0.25)
    found = load_file(tmp_path / "model" / "model.safetensors")
    assert found.keys() == {**parts.device.state_dict(), **parts.server.state_dict()}.keys()


def test_all_clients_are_exported_each_in_a_folder(tmp_path: Path) -> None:
    run = run_of("psl")
    done = gapsl.export(run, tmp_path / "models", client="all")
    assert [one.folder.name for one in done] == ["client-0000", "client-0001", "client-0002"]
    assert torch.equal(logits(gapsl.load(tmp_path / "models", 1)), logits(gapsl.load(run, 1)))
    with pytest.raises(
        InputError, match=r"several clients; name the folder of one: .*client-0000, client-0001"
    ):
        gapsl.load(tmp_path / "models")
    with pytest.raises(InputError, match="one and the same for all devices; use --client merged"):
        gapsl.export(run_of("sfl"), tmp_path / "others", client="all")


def test_heads_are_exported_too(tmp_path: Path) -> None:
    run = run_of("psl", labels="device")
    (done,) = gapsl.export(run, tmp_path / "model", client=1)
    assert "head.safetensors" in done.files
    assert torch.equal(logits(gapsl.load(tmp_path / "model")), logits(gapsl.load(run, 1)))


@pytest.mark.parametrize("settings", [{}, {"model": "small", "norm": "batch", "cut_norm": "sample"}])
def test_what_torch_exports_computes_the_same(settings: dict[str, str], tmp_path: Path) -> None:
    run = run_of("psl", **settings)
    gapsl.export(run, tmp_path / "model", client=1, format="torch", raw_inputs=True)
    program = torch.export.load(tmp_path / "model" / "model.pt2").module()
    raw = torch.rand(7, 1, 8, 8)
    model = gapsl.load(run, 1)
    assert torch.allclose(program(raw), model(model.preprocess(raw)), atol=1e-5)
    with pytest.raises(InputError, match=r"torch.export.load runs; gapsl reads --format safetensors"):
        gapsl.load(tmp_path / "model")


def test_what_onnxruntime_runs_computes_the_same(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
    pytest.importorskip("onnxscript", reason="the extra `export` is not installed")
    run = run_of("psl", labels="device")
    gapsl.export(run, tmp_path / "model", client="ensemble", format="onnx", raw_inputs=True)
    session = onnxruntime.InferenceSession(str(tmp_path / "model" / "model.onnx"))
    raw = torch.rand(7, 1, 8, 8)
    (found,) = session.run(None, {"inputs": raw.numpy()})
    model = gapsl.load(run, "ensemble")
    assert torch.allclose(torch.from_numpy(found), model(model.preprocess(raw)), atol=1e-4)


# --- what is refused


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"format": "tflite"}, "unknown format 'tflite'; choose safetensors, torch, onnx"),
        ({"raw_inputs": True}, "--raw-inputs has no place in it"),
        ({"opset": 17}, "--opset is for --format onnx"),
        ({"format": "onnx", "opset": 99}, "there is no opset 99 to write"),
        ({"client": 9}, "no client '9'"),
        ({"client": "everybody"}, "no client 'everybody'"),
    ],
)
def test_bad_choices_are_refused_and_leave_nothing(
    choices: dict[str, object], words: str, tmp_path: Path
) -> None:
    if choices.get("format") == "onnx":
        pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
    with pytest.raises(InputError, match=words):
        gapsl.export(run_of("psl"), tmp_path / "model", **choices)
    assert left(tmp_path) == []


def test_an_opset_that_the_model_or_the_runtime_does_not_know_is_refused(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the extra `export` is not installed")
    pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
    newest = onnx.defs.onnx_opset_version()  # which onnx knows before onnxruntime does
    with pytest.raises(InputError, match="opset"):
        gapsl.export(run_of("psl", model="small"), tmp_path / "model", client=0, format="onnx", opset=newest)
    assert left(tmp_path) == []


def test_a_folder_that_is_not_empty_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine").write_text("x")
    with pytest.raises(InputError, match="is there already; choose another folder with --out"):
        gapsl.export(run_of("psl"), tmp_path / "model")
    assert left(tmp_path / "model") == ["mine"]


def test_what_a_killed_export_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    if (child := os.fork()) == 0:
        with exporting.drafted_folder(tmp_path / "killed") as draft:
            (draft / "client.safetensors").write_bytes(b"x")
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert left(tmp_path) == [f".killed.draft-{child}"]
    (tmp_path / ".model.2024").mkdir()  # somebody's own
    with exporting.drafted_folder(tmp_path / "other") as draft:
        gapsl.export(run_of("psl"), tmp_path / "model", client=0)
        assert left(tmp_path) == [".model.2024", draft.name, "model"]
    assert left(tmp_path) == [".model.2024", "model", "other"]


@pytest.mark.parametrize("number", ["01", "１"])
def test_a_client_is_named_by_its_number(number: str, tmp_path: Path) -> None:
    (done,) = gapsl.export(run_of("psl"), tmp_path / "model", client=number)
    assert done.client == "1"


def test_a_full_disk_is_an_outage_and_a_file_in_the_way_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        InputError, match=r"cannot write to .*file/model: Not a directory; choose another --out"
    ):
        gapsl.export(run_of("psl"), tmp_path / "file" / "model")

    def full(*arguments: object, **words: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("gapsl.common.tensors.save_file", full)
    with pytest.raises(Unavailable, match="No space left on device; make room, and try again"):
        gapsl.export(run_of("psl"), tmp_path / "model")
    assert left(tmp_path) == ["file"]


def test_a_file_that_computes_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(path: Path, model: torch.nn.Module, example: torch.Tensor, *rest: object) -> None:
        zeros = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
        exporting.write_tensors(path, zeros)

    monkeypatch.setattr(exporting, "write_model", wrong)
    with pytest.raises(InputError, match=r"client.safetensors computes something else"):
        gapsl.export(run_of("psl"), tmp_path / "model", client=0)
    assert left(tmp_path) == []


def test_an_accuracy_that_the_run_did_not_measure_is_refused(tmp_path: Path) -> None:
    run = copy_of(run_of("psl"), tmp_path / "run")
    said = json.loads((run / "model.json").read_text())
    (run / "model.json").write_text(json.dumps({**said, "mean": [50.0]}))
    with pytest.raises(InputError, match="on the test set, the run measured"):
        gapsl.export(run, tmp_path / "model", client="ensemble")
    assert left(tmp_path) == ["run"]


@pytest.mark.parametrize("damage", ["truncated", "missing", "manifest", "outside"])
def test_a_damaged_export_is_refused(damage: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    gapsl.export(run_of("psl"), folder, client=0)
    file, manifest = folder / "server.safetensors", folder / "export.json"
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[:-9])
    elif damage == "missing":
        file.unlink()
    elif damage == "manifest":
        manifest.write_text(manifest.read_text()[:100])
    else:
        manifest.write_text(manifest.read_text().replace("server.safetensors", "../server.safetensors"))
    with pytest.raises(InputError, match="export it again"):
        gapsl.load(folder)


def test_an_export_of_another_client_is_not_taken_for_it(tmp_path: Path) -> None:
    gapsl.export(run_of("psl"), tmp_path / "model", client=0)
    with pytest.raises(InputError, match="is the model of client 0, not 1"):
        gapsl.load(tmp_path / "model", 1)


def test_parts_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    gapsl.export(run_of("psl"), tmp_path / "a", client=0)
    gapsl.export(run_of("psl", cut=2), tmp_path / "b", client=0)
    gapsl.export(run_of("psl", seed=1), tmp_path / "c", client=0)
    with pytest.raises(InputError, match="not of one model: cut 1 and 2"):
        gapsl.export(tmp_path / "a", tmp_path / "model", join=tmp_path / "b")
    said = json.loads((tmp_path / "b" / "export.json").read_text())
    gapsl.export(tmp_path / "b", tmp_path / "same", join=tmp_path / "b")
    (tmp_path / "b" / "export.json").write_text(json.dumps({**said, "round": 20}))
    (done,) = gapsl.export(tmp_path / "same", tmp_path / "other", join=tmp_path / "b")
    assert done.accuracy is None, "of another round nobody measured it"
    with pytest.raises(InputError, match="were not trained together"):
        gapsl.export(tmp_path / "a", tmp_path / "model", join=tmp_path / "c")
    assert left(tmp_path) == ["a", "b", "c", "other", "same"]
