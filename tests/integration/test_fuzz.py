"""Whatever is typed, and whatever a run's folder has become: an answer in words, never a traceback.

`make soak` runs a thousand command lines and two hundred broken folders, `make test` the first few. Each
has a seed of its own, so that the one that failed can be run alone.
"""

import json
import random
import shutil
from pathlib import Path

import pytest
from quick import QUICK
from typer.testing import CliRunner

import gapsl
from gapsl.analysis.settings import all_settings
from gapsl.cli.main import COMMANDS, app, load

FEW, MANY = 40, 1000
FEW_FOLDERS, MANY_FOLDERS = 20, 200

SPOKEN = (
    "train",
    "compare",
    "resume",
    "show",
    "status",
    "diagnose",
    "methods",
    "settings",
    "model",
    "replay",
)
GROUPS = {"data": ("show",), "certs": ("init", "server", "device", "revoke", "list")}

WORDS = (
    "", " ", "nope", "é", "-", "--", "x" * 300, "../..", "/dev/null", "/nowhere/at/all", "null", "true",
    "off", "nan", "inf", "-inf", "1e309", "0", "-1", "1", "2", "0.5", "1e-9", "99999999999999999999", "[",
    "{", "[1, 2]", "{a: 1}", "0,1", "a,b", ",", "psl", "gapsl", "papsl", "sfl", "central", "digits",
    "folder:/nowhere", "iid", "dirichlet:0", "dirichlet:-1", "dirichlet:0.5", "shards:0", "shards:99",
    "file:/dev/null", "iid+noise:-1", "%s", "mlp", "vgg16", "cuda:99", "mps", "$HOME", "*", "\t", "good",
    "good/config.yaml", "broken.yaml",
)  # fmt: skip
CHEAP = ("1", "2", "0", "-1", "x")  # of what would take long
COSTLY = {"rounds", "epochs", "devices", "batch_size", "workers", "width", "checkpoint_every"}
BASE = ("--dataset", "digits", "--model", "mlp", "--rounds", "1", "--devices", "2", "-q")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A finished run."""
    out = tmp_path_factory.mktemp("fuzz") / "good"
    gapsl.train(**{**QUICK, "method": "gapsl", "rounds": 3, "checkpoint_every": 1}, out=out)
    return out


def value(chance, name):
    return chance.choice(CHEAP if name in COSTLY else WORDS)


def assignment(chance, names):
    name = chance.choice(names)
    leaf = name.rpartition(".")[2]
    if leaf in COSTLY or leaf in ("patch", "probes", "probe_steps", "threads"):
        return f"{name}={chance.choice(CHEAP)}"
    return f"{name}={value(chance, leaf)}"


def command_line(seed):
    """Return a command line that somebody might type, with much of it wrong."""
    chance = random.Random(seed)
    settings = [info.name for group in all_settings().values() for info in group] + ["lr", "nope", "", "."]
    word = chance.choice([*SPOKEN, *SPOKEN, *GROUPS])
    command = load(word, COMMANDS[word])
    line = [word]
    if word in GROUPS:
        inner = chance.choice(GROUPS[word])
        command = command.commands[inner]
        line.append(inner)
    if word in ("train", "compare"):
        line += [*BASE, "--out", f"out-{seed}"]
    if word == "compare":
        line += ["--methods", "psl", "--workers", "1"]
    options = [option for option in command.params if option.name not in ("help", "plugin", "data_dir")]
    for option in chance.sample(options, k=min(len(options), chance.randint(0, 3))):
        if option.param_type_name == "argument":
            line.append(value(chance, option.name))
        elif getattr(option, "is_flag", False):
            line.append(option.opts[0])
        elif option.name == "set_":
            line += ["--set", assignment(chance, settings)]
        else:
            line += [option.opts[0], value(chance, option.name)]
    if any(option.param_type_name == "argument" for option in options) and chance.random() < 0.5:
        line.append("good")
    return line


def answers(line):
    ended = CliRunner().invoke(app, line)
    said = f"{' '.join(map(repr, line))}: {ended.exception!r}\n{ended.output[-2000:]}"
    assert ended.exit_code in (0, 2, 3, 4), said
    assert "Traceback" not in ended.output, said
    return ended


def lines(few, many):
    return [*range(few), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(few, many))]


@pytest.mark.parametrize("seed", lines(FEW, MANY))
def test_every_command_line_is_answered(seed, good, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(good, tmp_path / "good")
    (tmp_path / "broken.yaml").write_bytes(b"rounds: [1\n\xff")
    answers(command_line(seed))


def truncate(chance, path):
    data = path.read_bytes()
    path.write_bytes(data[: chance.randrange(len(data) + 1)])


def flip(chance, path):
    data = bytearray(path.read_bytes() or b"x")
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(data))


def garble(chance, path):
    path.write_bytes(
        chance.choice([b"", b"\xff\xfe", b"null", b"[]", b'{"schema": 1}', b"[" * 5000, b"\x00" * 100])
    )


def remove(chance, path):
    path.unlink()


def become_a_folder(chance, path):
    path.unlink()
    path.mkdir()


def change_a_value(chance, path):
    """Put something else where a value was, if it is JSON."""
    try:
        content = json.loads(
            path.read_text(encoding="utf-8").splitlines()[0] if path.suffix == ".jsonl" else path.read_text()
        )
    except (ValueError, IndexError):
        return flip(chance, path)
    place = content
    while isinstance(place, dict | list) and place:
        key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if not isinstance(place[key], dict | list) or not place[key] or chance.random() < 0.3:
            place[key] = chance.choice([None, "x", -1, 1e308, [], {}, True, [None], {"0": "x"}])
            break
        place = place[key]
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")
    return None


DAMAGE = (truncate, flip, garble, remove, become_a_folder, change_a_value, change_a_value)


@pytest.mark.parametrize("seed", lines(FEW_FOLDERS, MANY_FOLDERS))
def test_a_broken_folder_is_refused_in_words_or_made_whole(seed, good, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chance = random.Random(seed)
    folder = tmp_path / "broken"
    shutil.copytree(good, folder)
    if chance.random() < 0.6:
        (folder / "result.json").unlink()
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    for path in chance.sample(files, k=chance.randint(1, 2)):
        chance.choice(DAMAGE)(chance, path)
    for command in ("status", "show", "diagnose", "resume", "replay"):
        answers([command, "broken"])


def test_a_whole_folder_is_answered_with_success(good, tmp_path, monkeypatch):
    """So that the test above can fail."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(good, tmp_path / "good")
    for command in ("status", "show", "diagnose", "resume", "replay"):
        assert answers([command, "good"]).exit_code == 0
    assert Path("good/result.json").is_file()
