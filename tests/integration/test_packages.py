"""The source archive and the wheel: what is in them, and that the wheel works alone."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from processes import result_of

import gapsl

ROOT = Path(__file__).parents[2]
SKIPPED = shutil.ignore_patterns("__pycache__", "*.egg-info", "fixtures")


def run(*words: str | Path, cwd: Path) -> str:
    """Run a command without what the tests find gapsl by; returns what it printed."""
    found = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        list(map(str, words)), cwd=cwd, env=found, capture_output=True, text=True, timeout=280, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, built from a copy of the tree."""
    copy = tmp_path_factory.mktemp("tree")
    for path in [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), *ROOT.glob("MANIFEST.in"), ROOT / "LICENSE"]:
        shutil.copy(path, copy)
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=SKIPPED)
    build = "from setuptools import build_meta; build_meta.build_sdist('dist')"
    run(sys.executable, "-c", build, cwd=copy)
    (found,) = (copy / "dist").iterdir()
    return found


@pytest.fixture(scope="module")
def wheel(archive: Path) -> Path:
    """The wheel, built from nothing but the archive."""
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    run(*pip, "--wheel-dir", archive.parent, archive, cwd=archive.parent)
    (found,) = archive.parent.glob("*.whl")
    return found


def test_they_have_all_that_the_source_has_and_no_tests(archive: Path, wheel: Path) -> None:
    source = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "gapsl").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    for name in (
        "py.typed", "data/digits.npz", "run/presets/recommended.yaml", "network/protocol/wire.proto",
        "dashboard/static/index.html", "dashboard/static/vendor/LICENSE",
    ):  # fmt: skip
        assert f"gapsl/{name}" in source
    packed = set(zipfile.ZipFile(wheel).namelist())
    about = {name for name in packed if ".dist-info/" in name}
    assert packed - about == source
    assert any(name.endswith("licenses/LICENSE") for name in about)
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {f"src/{name}" for name in source} | {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert not any(name.startswith("tests") for name in names)


@pytest.mark.slow  # torch is loaded again and again
def test_the_wheel_trains_where_nothing_else_of_gapsl_is(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=tmp_path)
    own = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", own, "install", "--no-deps", "--no-index", "--quiet"]
    run(*pip, wheel, cwd=tmp_path)
    # What gapsl needs is where the tests have it. Folders that are added so bring no editable packages along.
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n", encoding="utf-8")
    assert run(own, "-c", "import gapsl; print(gapsl.__file__)", cwd=tmp_path).startswith(str(packages))

    command = home / "bin" / "gapsl"
    assert gapsl.__version__ in run(command, "--version", cwd=tmp_path)
    words = ["--dataset", "digits", "--model", "mlp", "--devices", "2", "--rounds", "2", "--out", "run"]
    run(command, "train", *words, cwd=tmp_path)
    assert result_of(tmp_path / "run").rounds == 2
    assert "2 rounds" in run(command, "show", "run", cwd=tmp_path)
