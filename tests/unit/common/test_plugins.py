"""Plugins: files and modules by name, and what installed packages announce."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gapsl.common import plugins
from gapsl.common.errors import InputError
from gapsl.common.registry import Registry

GROUP = "gapsl.tested"


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(plugins.VARIABLE, "")
    monkeypatch.setattr(sys, "modules", {**sys.modules})


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, *entries: str) -> None:
    """A package with entry points, as pip would leave it in a folder of the search path."""
    (folder / "theirs.py").write_text(source, "utf-8")
    info = folder / "theirs-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n" + "\n".join(entries) + "\n", "utf-8")
    monkeypatch.syspath_prepend(str(folder))


def test_a_file_is_loaded_once_and_named_to_processes_started_from_here(tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text("things = []\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    plugins.use_plugins(["./mine.py", "mine.py"])
    assert os.environ[plugins.VARIABLE] == str(file)
    assert plugins.load_plugin(str(file)).things is plugins.load_plugin(str(file)).things
    code = (
        "import sys; from gapsl.common.plugins import load_named; load_named(); "
        "print('gapsl_plugin_mine' in sys.modules)"
    )
    child = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "True"


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("gone.py", None, "there is no plugin file"),
        ("gone", None, "there is no plugin 'gone'"),
        ("bad.py", "1/0", "does not load: ZeroDivisionError"),
        ("bad.py", "def", "does not load: SyntaxError"),
        ("folder/picture.png", "x", "is no plugin: a file of Python code ends in .py"),
        ("bad.py", "import nowhere_to_be_found", "not installed: nowhere_to_be_found"),
    ],
)
def test_what_cannot_be_loaded_is_named_with_the_reason(tmp_path, monkeypatch, name, source, words):
    monkeypatch.chdir(tmp_path)
    if source is not None:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(source, "utf-8")
    with pytest.raises(InputError, match=words):
        plugins.use_plugins([name])
    assert not plugins.named(), "and children are not sent after it"


def test_what_a_package_announces_is_found_by_name_and_in_lists(tmp_path, monkeypatch):
    installed(tmp_path, monkeypatch, "thing = 7\n", "seven = theirs:thing")
    for ask in (lambda found: found["seven"], lambda found: dict(found)["seven"]):
        registry: Registry[int] = Registry("number", group=GROUP)
        registry.register("one", 1)
        assert ask(registry) == 7
        assert sorted(registry) == ["one", "seven"]


def test_a_known_name_loads_no_package(tmp_path, monkeypatch):
    installed(tmp_path, monkeypatch, "raise AssertionError('loaded')\n", "seven = theirs:thing")
    registry: Registry[int] = Registry("number", group=GROUP)
    registry.register("one", 1)
    assert registry["one"] == 1 and "one" in registry


def test_a_broken_package_is_left_out_with_a_warning_and_the_rest_works(tmp_path, monkeypatch):
    installed(tmp_path, monkeypatch, "raise OSError('no licence')\n", "seven = theirs:thing")
    registry: Registry[int] = Registry("number", group=GROUP)
    registry.register("one", 1)
    with pytest.warns(UserWarning, match=r"'seven' of theirs .* left out: OSError: no licence"):
        assert list(registry) == ["one"]


def test_a_package_cannot_take_a_name_that_is_taken(tmp_path, monkeypatch):
    installed(tmp_path, monkeypatch, "thing = 7\n", "one = theirs:thing")
    registry: Registry[int] = Registry("number", group=GROUP)
    registry.register("one", 1)
    with pytest.warns(UserWarning, match="registered already"):
        assert dict(registry) == {"one": 1}


def test_what_is_announced_and_is_of_another_kind_is_left_out_with_the_reason(tmp_path, monkeypatch):
    installed(tmp_path, monkeypatch, "thing = dict\n", "seven = theirs:thing")
    registry: Registry[type[int]] = Registry("observer", group=GROUP, base=int)
    registry.register("one", bool)
    with pytest.warns(UserWarning, match=r"'seven' .* left out: .* is not an observer: .*gapsl\.int"):
        assert dict(registry) == {"one": bool}
