"""What the README and the pages say can be typed in as it stands."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import tomllib
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
import yaml
from network import SMALL, trained_over_loopback
from processes import Launcher
from small_runs import run_of
from snippets import PAGES, ROOT, Snippet, inline, snippets

import gapsl
from gapsl.analysis.settings import settings_markdown
from gapsl.cli.main import COMMANDS, load
from gapsl.methods.registry import METHODS
from gapsl.network.protocol.settings import Network
from gapsl.run.api import compose
from gapsl.run.config import make_config

ALL = [snippet for page in PAGES for snippet in snippets(page)]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
PLACES = COMMANDS | {found.name: found.value for found in entry_points(group="gapsl.commands")}
SETTINGS = set(re.findall(r"^\| `([a-z_.]+)`", settings_markdown(), flags=re.MULTILINE))

# The same command on little data: later options win.
TINY = "--dataset digits --model mlp --batch-size 4 --rounds 3 --set norm=none --set test_samples=60 --quiet"
SMALLER = {
    "train": TINY,
    "compare": f"{TINY} --workers 1 --seeds 0",
    "fleet up": "--devices 2 --set model=mlp --set rounds=3",
    "dashboard": "--port 0",
    "resume": "--rounds 6",
}
FOR_PAGE = {  # what the model of the page's run asks for
    "export.md": {"train": f"{TINY} --devices 4 --partition iid --set width=0.25"},
    "diagnose.md": {"train": f"{TINY} --rounds 30"},
}
RUNS = {"export.md": ["a"], "files.md": ["a"], "dashboard.md": ["b"]}  # that a page begins with
SERVES = ("dashboard",)  # until it is stopped
NEEDS = {
    "scale.md": "ray",
    "export.md": "onnxruntime",
    "dashboard.md": "starlette",
    "tutorial.md": "starlette",
}


def of(page: Path, language: str) -> list[Snippet]:
    return [snippet for snippet in ALL if snippet.page == page and snippet.language == language]


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if any(not found.reason for found in of(page, language))]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def slowly(pages: list[Path], *, quick: tuple[str, ...] = (), slow: tuple[str, ...] = ()) -> list[Any]:
    """Return pages for a test, marked as slow but for the quick ones, or only the slow ones."""
    return [
        pytest.param(page, id=named(page), marks=[pytest.mark.slow] if late else [])
        for page in pages
        for late in [page.name in slow or (bool(quick) and page.name not in quick)]
    ]


def test_blocks_say_what_they_are() -> None:
    known = {"sh", "python", "yaml", "toml", "text"}
    strange = [str(s) for s in ALL if s.language not in known and not s.language.startswith("{")]
    assert not strange, "say sh, python, yaml, toml or text behind the three backticks"
    assert all(snippet.language in ("sh", "python") for snippet in ALL if snippet.reason)


@pytest.mark.parametrize("snippet", [found for found in ALL if found.reason], ids=str)
def test_what_is_not_run_says_why(snippet: Snippet) -> None:
    pytest.skip(f"{snippet}: {snippet.reason}")  # `pytest -rs` lists them


# --- commands, without running them


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that words call, and the words after its name."""
    assert words[0] in PLACES, f"there is no gapsl {words[0]}"
    command, rest = load(words[0], PLACES[words[0]]), words[1:]
    if rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


def assert_exists(words: list[str]) -> None:
    """Check a command's name, its options and its settings."""
    if words[0].startswith("-") or not words[0].islower():
        return  # `gapsl --version`, `gapsl COMMAND`
    command, rest = command_of(words)
    known = {opt for param in command.get_params(typer.Context(command)) for opt in param.opts}
    for word in (word.partition("=")[0] for word in rest if word.startswith("--")):
        assert word in known or not known, f"gapsl {words[0]} has no {word}"
    for before, word in pairwise(rest):
        if before == "--set" and "=" in word:
            assert word.partition("=")[0] in SETTINGS | {"name"}, f"there is no setting {word}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_and_options_that_are_named_exist(page: Path) -> None:
    said = [shlex.split(text.replace("...", " ")) for text in inline(page) if text.startswith("gapsl ")]
    said += [words for block in of(page, "sh") for words in block.commands() if words[0] == "gapsl"]
    for words in said:
        if len(words) > 1:
            assert_exists([word for word in words[1:] if word != "..."])


def test_functions_and_classes_that_are_named_exist() -> None:
    for page in (page for page in PAGES if page.name != "CHANGELOG.md"):  # it names what is gone
        for text in inline(page):
            for name in re.findall(r"(?<![\w/])gapsl\.([a-z_]+(?=\()|[A-Z]\w+)", text):
                assert name in gapsl.__all__, f"{page.name}: {text}"


@pytest.mark.parametrize("snippet", [found for found in ALL if found.language == "yaml"], ids=str)
def test_settings_in_yaml_are_settings(snippet: Snippet) -> None:
    given = yaml.safe_load(snippet.text)
    Network.model_validate(given.pop("network", {}))
    make_config(given)


# --- run


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of a run over the network: the server's, and the devices' states."""
    folder = tmp_path_factory.mktemp("fleet")
    trained_over_loopback(compose(words={**SMALL, "method": "psl"}), folder)
    return folder


@pytest.fixture
def desk(tmp_path: Path, page: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with what the page takes for granted: the examples, runs, photographs, a fleet's parts."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for run in RUNS.get(page.name, ()):
        shutil.copytree(run_of("psl", devices=4), tmp_path / "runs" / run)
    if page.name == "export.md":
        put_photographs(tmp_path)
        fleet = request.getfixturevalue("fleet")
        shutil.copytree(fleet / "run", tmp_path / "runs/fleet")
        (state,) = (fleet / "state").glob("*/device-1")
        shutil.copytree(state, tmp_path / "gapsl-state/RUN/camera-1")
    return tmp_path


def put_photographs(desk: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="the extra `datasets` is not installed")
    test = gapsl.load_source("digits").test
    for index, pixels in enumerate(test.read(torch.arange(60))[:, 0]):
        folder = desk / "photos" / str(int(test.labels[index]) % 3)
        folder.mkdir(parents=True, exist_ok=True)
        image.fromarray((pixels * 255).round().to(torch.uint8).numpy()).save(folder / f"{index}.png")
    image.new("RGB", (30, 20)).save(desk / "photo.png")


def on_little_data(words: list[str], page: Path) -> list[str]:
    """Return a command with options behind it that make it small."""
    name = " ".join(words[1:3]) if words[1] == "fleet" else words[1]
    smaller = {**SMALLER, **FOR_PAGE.get(page.name, {})}.get(name, "").split()
    if "--epochs" in words:  # --rounds instead
        at = words.index("--epochs")
        words = words[:at] + words[at + 2 :]
    return words + (smaller if name != "resume" or "--rounds" in words else [])


def run_command(cli: Launcher, words: list[str], desk: Path, page: Path) -> None:
    """Run a command of a page on little data; what is not gapsl's own is checked to exist."""
    match words:
        case ["make", target]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        case ["pip", "install", *rest]:
            for extra in re.findall(r"\w+", re.sub(r".*\[|\].*", "", rest[-1])):
                assert extra in EXTRAS
        case ["gapsl", name, *_]:
            started = cli.start(*on_little_data(words, page)[1:], cwd=desk)
            if name in SERVES:
                assert started.until(lambda: "http://" in started.stdout, "the address"), started.stderr
                started.signal(signal.SIGINT)
            ended = started.wait()
            assert ended.code == (130 if name in SERVES else 0), f"{shlex.join(words)}: {ended.stderr}"
        case _:
            pytest.fail(f"{shlex.join(words)}: only gapsl, make and pip are run; mark the block otherwise")


@pytest.mark.timeout(600)  # many commands
@pytest.mark.parametrize("page", slowly(pages_with("sh"), quick=("README.md", "certificates.md")))
def test_the_commands_of_a_page_work_one_after_another(cli: Launcher, page: Path, desk: Path) -> None:
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name], reason="an extra is not installed")
    for snippet in of(page, "sh"):
        for words in () if snippet.reason else snippet.commands():
            run_command(cli, words, desk, page)


@pytest.mark.parametrize("page", slowly(pages_with("python"), slow=("tutorial.md", "export.md")))
def test_the_python_of_a_page_runs(cli: Launcher, page: Path, desk: Path) -> None:
    blocks = [block.text for block in of(page, "python") if not block.reason]
    script = desk / "page.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    if page.name == "diagnose.md":
        shutil.copytree(run_of("psl", devices=4), desk / "runs/first")
    ended = cli.run(script=script, cwd=desk)
    assert ended.code == 0, ended.stderr
    if page.name == "README.md":
        assert 0.9 < float(ended.stdout) <= 1
    if page.name == "export.md":
        assert ended.stdout.strip() == str(int(gapsl.load_source("digits").test.labels[0]))


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_the_examples_run(cli: Launcher, example: Path, tmp_path: Path) -> None:
    if example.stem == "huggingface":
        for package in ("transformers", "datasets"):
            pytest.importorskip(package, reason="the extra `huggingface` is not installed")
    ended = cli.run(script=example, cwd=tmp_path)
    assert ended.code == 0, ended.stderr
    assert "%" in ended.stdout


# --- what must be said


def test_the_method_in_the_docs_is_the_one_in_the_examples() -> None:
    shown = next(b.text for b in of(ROOT / "docs/own-method.md", "python") if "LevelPsl" in b.text)
    example = (ROOT / "examples/own_method.py").read_text("utf-8")
    for line in shown.splitlines():
        if line.strip() and not line.strip().startswith(("def ", "from ")):
            assert line.strip() in example


def test_the_page_of_settings_is_up_to_date() -> None:
    assert (ROOT / "docs/configuration.md").read_text(encoding="utf-8") == settings_markdown()


def test_the_docs_name_every_method() -> None:
    page = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
    for method in (name for name, found in METHODS.items() if found.__module__.startswith("gapsl.")):
        assert f"`{method}`" in page


def test_the_citation_is_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= set(cited)
    assert (cited["cff-version"], cited["version"]) == ("1.2.0", gapsl.__version__)
    (paper,) = cited["references"]
    assert paper["title"].startswith("GAPSL: ") and len(paper["authors"]) == 7
