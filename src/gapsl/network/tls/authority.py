"""The authority's folder: who was given which certificate, and what was revoked.

Every file is whole at any moment, and files are written in an order that makes a crash harmless: a serial
number is remembered before its certificate is there, so that whatever exists can be revoked, and a key comes
before its certificate. What a crash leaves unfinished, the same command with --force finishes.
"""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gapsl.common.errors import InputError
from gapsl.common.files import drafted, file_lock, write_bytes
from gapsl.common.registry import nearest
from gapsl.network.tls.certificates import (
    CA_DAYS,
    LEAF_DAYS,
    Pair,
    default_hosts,
    hosts_of,
    new_ca,
    new_device,
    new_list,
    new_server,
    read_certificate,
    read_file,
    read_list,
)
from gapsl.network.tls.names import (
    CA,
    CA_KEY,
    ISSUED,
    REVOKED,
    SERVERS,
    authority_files,
    check_name,
    check_server,
    option,
)

SCHEMA = 1
PENDING = ".pending"
STORED = ("name", "serial", "begins", "ends")


@dataclass(frozen=True)
class Issued:
    """A certificate that was given to somebody; times are ISO 8601, in UTC."""

    name: str
    serial: str  # hexadecimal
    begins: str
    ends: str
    revoked: bool = False  # as the list says, which is where it is stored

    @property
    def kind(self) -> str:
        """What the certificate is for: server, parameter-server or device."""
        return self.name if self.name in SERVERS else "device"

    @property
    def works(self) -> bool:
        """Whether somebody can still show it."""
        return not self.revoked and self.days_left() > 0

    def days_left(self) -> float:
        """Return for how many days it is still valid."""
        return (datetime.fromisoformat(self.ends) - datetime.now(UTC)).total_seconds() / 86400


class Authority:
    """Gives certificates to servers and devices, and takes them back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / CA).exists():
            raise InputError(
                f"there is no authority in {folder}; make one with: gapsl certs init{option(folder)}"
            )
        self.certificate = read_certificate(folder / CA)

    @staticmethod
    def create(folder: Path, *, days: int = CA_DAYS) -> Authority:
        """Make an authority in a folder that has none; one that is there is never overwritten."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make {folder}: {error.strerror}; choose another with --folder"
            ) from None
        with alone_in(folder):
            for name in (CA, CA_KEY):
                if (folder / name).exists():
                    raise InputError(
                        f"{folder / name} exists already, and is never overwritten: all certificates of its "
                        "fleet hang on it; choose another folder with --folder"
                    )
            ca = new_ca(days=days)
            write_in_order(
                folder,
                {
                    folder / ".gitignore": b"*\n",  # keys do not belong into anybody's history
                    folder / REVOKED: new_list(ca, {}, number=0),
                    folder / ISSUED: index_of([]),
                    folder / CA_KEY: ca.key_pem,
                    folder / CA: ca.certificate_pem,
                },
            )
        return Authority(folder)

    def issue(
        self, name: str, hosts: Iterable[str] = (), *, days: int | None = None, force: bool = False
    ) -> Issued:
        """Give a device its certificate, or a server one for the hosts that devices reach it under."""
        files = authority_files(self.folder, name if name in SERVERS else check_name(name))
        with alone_in(self.folder):
            for path in () if force else (files.certificate, files.key):
                if path.exists():
                    command = f"server --name {name}" if name in SERVERS else f"device {name}"
                    again = f"gapsl certs {command} --force{option(self.folder)}"
                    raise InputError(f"{path} exists already; to issue a new one in its place: {again}")
            if name in SERVERS:
                pair = new_server(self._pair(), name, hosts, days=days or LEAF_DAYS)
            else:
                pair = new_device(self._pair(), name, days=days or LEAF_DAYS)
            begins, ends = pair.certificate.not_valid_before_utc, pair.certificate.not_valid_after_utc
            serial = f"{pair.certificate.serial_number:032x}"
            issued = Issued(name, serial, begins.isoformat(), ends.isoformat())
            write_in_order(
                self.folder,
                {
                    self.folder / ISSUED: index_of([*self._index(), issued]),
                    files.key: pair.key_pem,
                    files.certificate: pair.certificate_pem,
                },
            )
        return issued

    def revoke(self, name: str) -> int:
        """Revoke every certificate a device was ever given; returns how many were not revoked before."""
        if name in SERVERS:
            raise InputError(
                "a server's certificate cannot be revoked: devices do not read the list. If others have "
                "its key, make a new authority in another folder (gapsl certs init --folder FOLDER) and "
                "give every machine its files anew"
            )
        with alone_in(self.folder):
            issued = self._index()
            serials = {int(one.serial, 16) for one in issued if one.name == name}
            if not serials:
                devices = {one.name for one in issued if one.name not in SERVERS}
                hint = nearest(name, devices) if devices else "no device has one yet"
                raise InputError(f"no certificate was issued to {name!r}; {hint}")
            earlier = read_list(self.folder / REVOKED, self.certificate)
            fresh = serials - earlier.serials.keys()
            if fresh:
                revoked = {**earlier.serials, **dict.fromkeys(fresh, datetime.now(UTC))}
                newer = new_list(self._pair(), revoked, number=earlier.number + 1)
                write_in_order(self.folder, {self.folder / REVOKED: newer})
        return len(fresh)

    def issued(self) -> list[Issued]:
        """Return every certificate that was issued, the newest last."""
        revoked = read_list(self.folder / REVOKED, self.certificate).serials
        return [replace(one, revoked=int(one.serial, 16) in revoked) for one in self._index()]

    def of(self, name: str) -> list[Issued]:
        """Return the certificates of a name, the newest last."""
        return [one for one in self.issued() if one.name == name]

    def current(self, name: str) -> Issued | None:
        """Return the newest certificate of a name if it is the one whose file is there, else None."""
        serial = read_certificate(authority_files(self.folder, name).certificate).serial_number
        return next((one for one in self.of(name)[-1:] if int(one.serial, 16) == serial), None)

    def hosts(self, name: str) -> list[str]:
        """Return the hosts that a server's certificate is for; if it has none yet, this machine's."""
        path = authority_files(self.folder, check_server(name)).certificate
        return hosts_of(read_certificate(path)) if path.exists() else default_hosts()

    def files(self, name: str) -> list[Path]:
        """Return what a party needs on its machine; a server also the list of the revoked."""
        return [*authority_files(self.folder, name), *[self.folder / REVOKED] * (name in SERVERS)]

    def pack(self, name: str, path: Path) -> None:
        """Write an archive with a folder of a party's files, all of them for their owner's eyes only."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o700, int(time.time())
            tar.addfile(folder)
            for file in self.files(name):
                data = read_file(file)
                member = tarfile.TarInfo(f"{name}/{file.name}")
                member.size, member.mode, member.mtime = len(data), 0o600, int(file.stat().st_mtime)
                tar.addfile(member, io.BytesIO(data))
        try:
            write_bytes(path, archive.getvalue(), mode=0o600)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}; choose another with --out") from None

    def _pair(self) -> Pair:
        path = self.folder / CA_KEY
        data = read_file(path)
        try:
            key = serialization.load_pem_private_key(data, None)
        except (ValueError, TypeError):
            raise InputError(f"{path} is no private key without a password; restore it from a copy") from None
        if (
            not isinstance(key, ec.EllipticCurvePrivateKey)
            or key.public_key() != self.certificate.public_key()
        ):
            raise InputError(f"{path} is not the key of {self.folder / CA}; restore it from a copy")
        return Pair(self.certificate, key)

    def _index(self) -> list[Issued]:
        path = self.folder / ISSUED
        data = read_file(path)
        try:
            content = json.loads(data)
            schema, issued = content["schema"], content["certificates"]
            if schema == SCHEMA:
                return [Issued(*(one[field] for field in STORED)) for one in issued]
        except (ValueError, TypeError, KeyError):
            raise InputError(f"{path} is damaged; restore it from a copy") from None
        raise InputError(
            f"{path} has schema {schema!r}, this gapsl reads {SCHEMA}; use the one that wrote it"
        )


def index_of(issued: Iterable[Issued]) -> bytes:
    """Return the file that remembers who was given what."""
    rows = [{field: getattr(one, field) for field in STORED} for one in issued]
    return (json.dumps({"schema": SCHEMA, "certificates": rows}, indent=1) + "\n").encode()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait for others that change a folder, keep them from it, and clean up after one that was killed."""
    with ExitStack() as lock:
        try:
            lock.enter_context(file_lock(folder))
        except OSError as error:
            raise InputError(f"cannot read {folder}: {error.strerror}") from None
        if (folder / PENDING).exists():
            raise InputError(
                f"{folder / PENDING} has the files of a change that another version of gapsl did not finish; "
                f"move them to their places in {folder}, and delete it"
            )
        for draft in (*folder.rglob(".*.pem.*"), *folder.glob(f".{ISSUED}.*")):
            draft.unlink(missing_ok=True)
        yield


def write_in_order(folder: Path, files: dict[Path, bytes]) -> None:
    """Write files of a folder one after the other, each of them whole; a full disk changes none.

    A key is its owner's alone from its first byte on.
    """
    try:
        with ExitStack() as drafts:
            for path, data in reversed(files.items()):  # the last to be entered is the first in its place
                path.parent.mkdir(mode=0o700, exist_ok=True)
                secret = path.name.endswith("-key.pem")
                drafts.enter_context(drafted(path, data, mode=0o600 if secret else 0o644))
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}; nothing was changed") from None
