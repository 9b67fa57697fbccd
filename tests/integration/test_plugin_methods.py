"""Other people's methods and observers, from the command line and over the network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fleet import Fleet
from processes import TINY, Launcher, fresh, result_of

from gapsl.common.plugins import VARIABLE

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_method.py"
OBSERVER = EXAMPLE.with_name("own_observer.py")
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "level-psl"
version = "1.0"
[project.entry-points."gapsl.methods"]
theirs = "level_psl:LevelPsl"
[tool.setuptools]
py-modules = ["level_psl"]
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed a package that announces a method."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "pyproject.toml").write_text(PROJECT, "utf-8")
    source = EXAMPLE.read_text("utf-8").partition("gapsl.register_method")[0]
    (folder / "level_psl.py").write_text(source, "utf-8")
    target = folder / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--no-index", "--target", str(target), str(folder)], check=True)
    return target


def with_package(target: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(target), os.environ.get("PYTHONPATH", "")])}


@pytest.mark.slow
def test_an_installed_method_is_compared_with_psl(cli: Launcher, package: Path, tmp_path: Path) -> None:
    compare = ["compare", *TINY, "--methods", "psl,theirs", "--workers", "1", "--out", tmp_path / "both"]
    ended = fresh(*compare, env=with_package(package))
    assert ended.code == 0, ended.stderr
    assert "theirs" in ended.stdout
    methods = [result_of(tmp_path / "both" / f"{name}-seed0").method for name in ("psl", "theirs")]
    assert methods == ["psl", "theirs"]
    without = cli.run("train", *TINY, "--method", "theirs", "--out", tmp_path / "without")
    assert without.code == 2 and "--plugin" in without.stderr


def test_files_are_plugins_for_a_comparison_and_its_workers(cli: Launcher, tmp_path: Path) -> None:
    plugins = ["--plugin", EXAMPLE, "--plugin", OBSERVER, "--set", "observers=[losses]"]
    compare = ["compare", *plugins, *TINY, "--methods", "psl,level-psl", "--workers", "1"]
    ended = cli.run(*compare, "--out", tmp_path / "c")
    assert ended.code == 0, ended.stderr
    for name in ("psl-seed0", "level-psl-seed0"):
        lines = (tmp_path / "c" / name / "losses.csv").read_text("utf-8").splitlines()
        assert len(lines) == result_of(tmp_path / "c" / name).rounds
    ended = cli.run("train", "--set", "observers=[losses]", *TINY, "--out", tmp_path / "t")
    assert ended.code == 2 and "an observer of a plugin needs --plugin" in ended.stderr


def test_a_file_is_a_plugin_for_train_and_resume(cli: Launcher, tmp_path: Path) -> None:
    plugin = ["--plugin", EXAMPLE]
    ended = cli.run("train", *plugin, *TINY, "--method", "level-psl", "--out", tmp_path / "t")
    assert ended.code == 0, ended.stderr
    again = cli.run("resume", *plugin, tmp_path / "t")
    assert again.code == 0 and "finished" in again.stdout + again.stderr
    ended = cli.run("train", "--plugin", tmp_path / "gone.py", *TINY, "--out", tmp_path / "g")
    assert ended.code == 2 and "there is no plugin file" in ended.stderr


def test_devices_train_a_method_that_only_the_server_has(cli: Launcher, tmp_path: Path) -> None:
    settings = {"method": "level-psl", "rounds": 6, "observers": ["losses"], "tensorboard": True}
    with Fleet(cli, tmp_path, settings) as fleet:
        fleet.environments["server"] = {VARIABLE: os.pathsep.join([str(EXAMPLE), str(OBSERVER)])}
        fleet.start()
        fleet.finish()
    assert result_of(tmp_path / "run").method == "level-psl"
    assert len((tmp_path / "run" / "losses.csv").read_text("utf-8").splitlines()) == 6
    assert list((tmp_path / "run" / "tensorboard").glob("events.*"))
