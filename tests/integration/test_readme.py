"""What the README and the docs say can be typed in as it stands."""

import re
import shlex
from pathlib import Path

import pytest
from processes import Launcher

from gapsl.analysis.settings import settings_markdown
from gapsl.methods.registry import METHODS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")

# The same command on little data: later options win.
SMALLER = {
    "train": "--dataset digits --model mlp --epochs 1 --set norm=none --set test_samples=100 --quiet",
    "compare": "--model mlp --rounds 3 --workers 1 --quiet",
    "fleet": "--devices 2 --set model=mlp --set rounds=3",
}


def fenced(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_the_commands_of_the_readme_work_one_after_another(cli: Launcher, tmp_path: Path) -> None:
    block = next(block for block in fenced(README, "sh") if "gapsl train" in block)
    lines = block.replace("\\\n", " ").splitlines()
    commands = [part.strip() for line in lines for part in line.split("#")[0].split(";") if part.strip()]
    assert len(commands) >= 8
    assert commands.pop(0) == ". .venv/bin/activate"
    for command in commands:
        words = shlex.split(f"{command} {SMALLER.get(command.split()[1], '')}")
        assert words[0] == "gapsl"
        ended = cli.run(*words[1:], cwd=tmp_path)
        assert ended.code == 0, f"{command}: {ended.stderr}"
    assert (tmp_path / "runs/a/result.json").is_file()
    assert (tmp_path / "runs/b/curves.png").is_file()


def printed_by(cli: Launcher, script: Path, folder: Path) -> str:
    """Return what a program prints."""
    ended = cli.run(script=script, cwd=folder)
    assert ended.code == 0, ended.stderr
    return ended.stdout


def test_the_python_of_the_readme_runs(cli: Launcher, tmp_path: Path) -> None:
    (block,) = fenced(README, "python")
    script = tmp_path / "readme.py"
    script.write_text(block, encoding="utf-8")
    assert 0.9 < float(printed_by(cli, script, tmp_path)) <= 1


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_the_examples_run(cli: Launcher, example: Path, tmp_path: Path) -> None:
    if example.stem == "huggingface":
        for package in ("transformers", "datasets"):
            pytest.importorskip(package, reason="the extra `huggingface` is not installed")
    assert "%" in printed_by(cli, example, tmp_path)


def test_the_method_in_the_docs_is_the_one_in_the_examples() -> None:
    shown = next(
        b for b in fenced((ROOT / "docs/methods.md").read_text("utf-8"), "python") if "LevelPsl" in b
    )
    example = (ROOT / "examples/own_method.py").read_text("utf-8")
    for line in shown.splitlines():
        if line.strip() and not line.strip().startswith("def "):
            assert line.strip() in example


def test_the_page_of_settings_is_up_to_date() -> None:
    assert (ROOT / "docs/configuration.md").read_text(encoding="utf-8") == settings_markdown()


def test_the_docs_name_every_method() -> None:
    page = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
    for method in (name for name, found in METHODS.items() if found.__module__.startswith("gapsl.")):
        assert f"`{method}`" in page


def test_no_link_between_the_pages_is_broken() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
