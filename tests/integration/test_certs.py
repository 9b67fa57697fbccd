"""`gapsl certs` as people use it: real processes and files, killed in the middle, refused where it must."""

from __future__ import annotations

import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import Ended, Launcher, contents

from gapsl.common.errors import InputError
from gapsl.network.tls.authority import Authority
from gapsl.network.tls.credentials import rehearse
from gapsl.network.tls.names import authority_files, files_of
from gapsl.network.tls.peers import Peers

Command = Callable[..., Ended]


@pytest.fixture
def certs(cli: Launcher, tmp_path: Path) -> Command:
    """Runs `gapsl certs` in a folder of its own."""
    return lambda *args: cli.run("certs", *args, cwd=tmp_path, env={"COLUMNS": "80"})


def done(ended: Ended) -> str:
    assert (ended.code, ended.stderr) == (0, "")
    return ended.stdout


def assert_refused(ended: Ended, *words: str) -> None:
    assert ended.code == 2, ended.stderr or ended.stdout
    assert ended.stderr.startswith("error: ")
    assert "Traceback" not in ended.stderr
    for word in words:
        assert word in ended.stderr


def test_from_nothing_to_a_device_with_its_files(certs: Command, tmp_path: Path) -> None:
    said = done(certs("init"))
    assert "certs/ca-key.pem  never leaves this machine" in said
    said = done(certs("server", "--host", "train.example.org", "--host", "10.0.0.5"))
    assert "the server's certificate for train.example.org, 10.0.0.5, valid until" in said
    for name in ("ca.pem", "server.pem", "server-key.pem", "revoked.pem"):
        assert f"  certs/{name}" in said
    said = done(certs("device", "cam-1"))
    for name in ("ca.pem", "devices/cam-1.pem", "devices/cam-1-key.pem"):
        assert f"  certs/{name}" in said
    assert "there: gapsl join --server HOST:PORT --name cam-1 --certs DIR" in said
    assert "ca-key.pem never leaves this machine" in said

    said = done(certs("device", "cam-1", "--pack"))
    assert "cam-1 has a certificate already" in said
    assert "tar xf cam-1.tar && gapsl join --server HOST:PORT --name cam-1 --certs cam-1" in said
    archive = tmp_path / "cam-1.tar"
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    subprocess.run(["tar", "xf", archive], cwd=tmp_path, check=True)
    rehearse(files_of(tmp_path / "cam-1", "cam-1"), "", serving=False)
    assert sorted(path.name for path in (tmp_path / "cam-1").iterdir()) == [
        "ca.pem",
        "cam-1-key.pem",
        "cam-1.pem",
    ]

    done(certs("server", "--name", "parameter-server", "--host", "ps.example.org", "--out", "p.tar"))
    with tarfile.open(tmp_path / "p.tar") as tar:
        assert "parameter-server/revoked.pem" in tar.getnames()
        assert not any("ca-key" in name for name in tar.getnames())


def test_the_list_warns(certs: Command, tmp_path: Path) -> None:
    done(certs("init"))
    assert "no certificates yet" in done(certs("list"))
    authority = Authority(tmp_path / "certs")
    authority.issue("server", ["localhost"])
    authority.issue("old", days=10)
    authority.issue("gone")
    authority.revoke("gone")
    authority_files(tmp_path / "certs", "gone").key.chmod(0o644)
    lines = done(certs("list")).splitlines()
    assert [line.split() for line in lines[1:4]] == [
        ["gone", "device", "365", "days", "yes"],
        ["old", "device", "10", "days"],
        ["server", "server", "365", "days"],
    ]
    assert [line for line in lines if line.startswith("warning")] == [
        "warning: the certificate of old expires in 10 days; renew it: gapsl certs device old --force",
        "warning: others on this machine can read certs/devices/gone-key.pem; "
        "close it with: chmod 600 certs/devices/gone-key.pem",
    ]


def test_renewing_and_revoking(certs: Command) -> None:
    done(certs("init", "--folder", "f"))
    done(certs("device", "cam", "--folder", "f"))
    assert_refused(certs("device", "cam", "--folder", "f"), "gapsl certs device cam --force --folder f")
    said = done(certs("device", "cam", "--force", "--folder", "f"))
    assert "what cam was given before goes on working" in said
    said = done(certs("revoke", "cam", "--folder", "f"))
    assert "revoked 2 certificates of cam" in said
    assert "f/revoked.pem" in said
    assert "gapsl certs device cam --force --folder f" in said
    assert "cam was revoked before" in done(certs("revoke", "cam", "--folder", "f"))
    assert_refused(certs("device", "cam", "--pack", "--folder", "f"), "revoked", "--force")
    assert "goes on working" not in done(certs("device", "cam", "--force", "--folder", "f"))


def test_what_is_refused(certs: Command, tmp_path: Path) -> None:
    assert_refused(certs("list"), "no authority in certs", "gapsl certs init")
    done(certs("init"))
    assert_refused(certs("init"), "certs/ca.pem exists already", "--folder")
    assert_refused(certs("device", "../cam"), "cannot be a device's name")
    assert_refused(certs("device", "server", "--pack"), "are taken")
    assert_refused(certs("server", "--name", "sever"), "did you mean 'server'?")
    assert_refused(certs("server", "--host", "host:50051"), "without a port")
    assert_refused(certs("device", "cam", "--out", "nowhere/cam.tar"), "no folder nowhere", "--out")
    assert_refused(certs("device", "cam", "--days", "3650"), "fewer --days")
    assert_refused(certs("revoke", "cam"), "no device has one yet")
    (tmp_path / "cam.tar").touch()
    assert_refused(certs("device", "cam", "--pack"), "cam.tar exists already")
    done(certs("server"))
    assert_refused(certs("server", "--host", "new.example", "--pack"), "server.pem exists already", "--force")
    assert not (tmp_path / "certs" / "devices").exists()
    (tmp_path / "file").touch()
    assert_refused(certs("init", "--folder", "file"), "cannot make file")
    assert_refused(certs("init", "--folder", "file/certs"), "cannot make file/certs")


# Does a thing in processes that are killed (-9) before their first, second, third... touch of a file, until
# one of them lives. Each of them has a fresh copy of the folder.
KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from gapsl.network.tls.authority import Authority

template, place, name = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
THINGS = {
    "init": lambda folder: Authority.create(folder),
    "device": lambda folder: Authority(folder).issue("new"),
    "renewal": lambda folder: Authority(folder).issue("cam", force=True),
    "revocation": lambda folder: Authority(folder).revoke("cam"),
}
EVENTS = ("open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.listdir", "os.scandir")
left = None

def count(event, args):
    global left
    if left is None or event not in EVENTS:
        return
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
for moment in range(1000):
    folder = place / name / f"{moment:03}"
    if name == "init":
        folder.parent.mkdir(exist_ok=True)
    else:
        shutil.copytree(template, folder)
    pid = os.fork()
    if not pid:
        left = moment
        THINGS[name](folder)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0:
        break
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("killed")
    authority = Authority.create(place / "template")
    authority.issue("server", ["localhost"])
    authority.issue("cam")
    return place


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("init", marks=pytest.mark.slow),
        "device",
        pytest.param("renewal", marks=pytest.mark.slow),
        "revocation",
    ],
)
def test_killed_at_any_moment_the_fleet_is_intact_and_force_finishes_it(killed: Path, what: str) -> None:
    subprocess.run([sys.executable, "-c", KILLED, killed / "template", killed, what], check=True)
    folders = sorted((killed / what).iterdir())
    assert len(folders) > 10, "moments"
    outcomes = [state_of(folder, killed / "template", what) for folder in folders]
    assert outcomes == sorted(outcomes), "from some moment on it is done"
    assert (outcomes[0], outcomes[-1]) == (0, 2)
    assert outcomes.count(1) <= 8, "the moments between two renames are few"


def state_of(folder: Path, template: Path, what: str) -> int:
    """Say whether the thing was not begun (0), is done in part (1), or done (2); each of them works."""
    for path in folder.rglob("*-key.pem*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    if what == "init":
        if not (folder / "ca-key.pem").exists():
            Authority.create(folder).issue("cam")
            return 0
        with pytest.raises(Exception, match="exists already"):
            Authority.create(folder)
        if not (folder / "ca.pem").exists():
            return 1  # a key that has signed nothing; another folder is asked for
        Authority(folder).issue("cam")
        return 2
    authority = Authority(folder)
    rehearse(authority_files(folder, "server"), "", serving=True)
    Peers(folder)  # reads the list
    before, after = contents(template), visible(contents(folder))
    changed = {name for name in after if after[name] != before.get(name)}
    if what == "revocation":
        rehearse(authority_files(folder, "cam"), "", serving=False)
        assert changed in (set(), {"revoked.pem"})
        assert authority.of("cam")[0].revoked == bool(changed)
        return 2 if changed else 0
    name = "cam" if what == "renewal" else "new"
    steps = ["issued.json", f"devices/{name}-key.pem", f"devices/{name}.pem"]
    assert changed == set(steps[: len(changed)]), "a serial is known before its certificate is there"
    files = authority_files(folder, name)
    if len(changed) == 2:  # the key is new, the certificate is old or missing
        with pytest.raises(InputError, match="make"):
            rehearse(files, "gapsl certs device", serving=False)
    elif files.certificate.exists():
        rehearse(files, "", serving=False)
    authority.issue(name, force=True)
    rehearse(files, "", serving=False)
    assert not [path.name for path in folder.rglob(".*") if path.name != ".gitignore"], "leftovers"
    assert authority.revoke(name) == 1 + bool(changed) + (what == "renewal")
    return (0, 1, 1, 2)[len(changed)]


def visible(files: dict[str, bytes]) -> dict[str, bytes]:
    """Leave out the drafts of a command that was killed."""
    return {
        name: data
        for name, data in files.items()
        if not Path(name).name.startswith(".") or name == ".gitignore"
    }


def test_commands_at_the_same_time_lose_nothing(cli: Launcher, certs: Command, tmp_path: Path) -> None:
    done(certs("init"))
    names = [f"cam-{number}" for number in range(5)]
    started = [cli.start("certs", "device", name, cwd=tmp_path) for name in names]
    assert [command.wait().code for command in started] == [0] * 5
    assert sorted(one.name for one in Authority(tmp_path / "certs").issued()) == names
