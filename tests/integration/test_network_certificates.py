"""A fleet of processes with certificates: who is let in, who is not, and what everybody is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from authorities import expired_device, pair_of
from fleet import PARAMETERS, SERVER, Fleet
from processes import Ended, Launcher, weights_of

from gapsl.network.tls.names import Files, authority_files

NAMES = ("device-0", "device-1", "device-2")


@pytest.fixture
def certs(cli: Launcher, tmp_path: Path) -> Path:
    """An authority's folder, made as a person makes it."""
    for words in (
        ["init"],
        ["server", "--host", "localhost"],
        ["server", "--name", "parameter-server", "--host", "localhost"],
        *(["device", name] for name in (*NAMES, "stranger", "lost")),
        ["revoke", "lost"],
    ):
        assert cli.run("certs", *words, cwd=tmp_path).code == 0
    return tmp_path / "certs"


def carried(folder: Path, name: str, ca: Path, certificate: Path | bytes, key: Path | bytes) -> Path:
    """Return a folder as it is on a device's machine, with these files under the device's name."""
    folder.mkdir()
    for file, source in zip(
        Files(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}-key.pem"),
        (ca, certificate, key),
        strict=True,
    ):
        file.write_bytes(source.read_bytes() if isinstance(source, Path) else source)
    return folder


def attempt(fleet: Fleet, name: str, certs: Path | None) -> Ended:
    """Start a device that should not get far, and wait for its end."""
    words = ["join", "--server", f"localhost:{fleet.port}", "--name", name]
    words += ["--state", str(fleet.folder / "elsewhere"), "--patience", "1"]
    words += [] if certs is None else ["--certs", str(certs)]
    return fleet.cli.run(*words, cwd=fleet.folder)


def test_processes_without_the_right_certificate_end_in_words_and_the_run_as_without_them(
    cli: Launcher, tmp_path: Path, certs: Path
) -> None:
    elsewhere, ca, old = tmp_path / "other", certs / "ca.pem", expired_device(pair_of(certs), "device-2")
    for words in (["init"], ["device", "device-2"]):
        assert cli.run("certs", *words, "--folder", elsewhere, cwd=tmp_path).code == 0
    other, stranger = authority_files(elsewhere, "device-2"), authority_files(certs, "stranger")

    def bringing(where: str, certificate: Path | bytes, key: Path | bytes) -> Path:
        return carried(tmp_path / where, "device-2", ca, certificate, key)

    visits: dict[str, tuple[str, Path | None]] = {
        "device-2.pem does not go with": ("device-2", bringing("1", *other[1:])),
        "its certificate is not good here: of another authority": ("device-2", elsewhere),
        "device-2.pem has expired": ("device-2", bringing("2", old.certificate_pem, old.key_pem)),
        "the certificate of lost is revoked": ("lost", certs),
        "'stranger' is not a device of this run": ("stranger", certs),
        "the certificate is that of 'stranger'": ("device-2", bringing("3", *stranger[1:])),
        "'device-0' is connected already": ("device-0", certs),
        "if it has certificates, give yours with --certs": ("device-2", None),
    }
    settings = {"method": "sfl", "sfl": {"interval": 2}, "rounds": 6}
    with Fleet(cli, tmp_path, settings, parameters=True, certs=certs, patience=600) as fleet:
        fleet.start(SERVER, PARAMETERS, "device-0", "device-1")
        for name in ("device-0", "device-1"):
            fleet.until(lambda name=name: f"{name} connected" in fleet.server.stderr, name)  # type: ignore[misc]
        for why, (name, brought) in visits.items():
            ended = attempt(fleet, name, brought)
            # Whoever sees no server it can talk to may try again later; who was refused may not.
            outage = any(words in why for words in ("not good here", "give yours", "connected already"))
            assert ended.code == (4 if outage else 2) and why in ended.stderr.splitlines()[-1], ended.stderr
            assert "Traceback" not in ended.stderr
        assert "device-2 connected" not in fleet.server.stderr
        fleet.start("device-2")
        fleet.finish()
        assert weights_of(fleet.run) == fleet.undisturbed()


@pytest.mark.slow
def test_a_process_that_is_revoked_in_mid_run_is_turned_out_and_comes_back_with_a_new_certificate(
    cli: Launcher, tmp_path: Path, certs: Path
) -> None:
    settings = {"method": "psl", "rounds": 40, "evaluate_every": 40, "checkpoint_every": 15}
    with Fleet(cli, tmp_path, settings, certs=certs) as fleet:
        fleet.arrange("device-0", "stall@before-send:round=21")  # the run waits until it is revoked
        fleet.start()
        fleet.processes["device-0"].until_stalled()
        assert cli.run("certs", "revoke", "device-1", cwd=tmp_path).code == 0
        fleet.go_on("device-0")
        ended = fleet.processes["device-1"].wait()
        assert ended.code == 2 and "the certificate of device-1 is revoked" in ended.stderr
        assert fleet.server.running and all(fleet.processes[f"device-{n}"].running for n in (0, 2))

        assert cli.run("certs", "device", "device-1", "--force", cwd=tmp_path).code == 0
        fleet.start("device-1")
        fleet.finish()
        assert weights_of(fleet.run) == fleet.undisturbed()
