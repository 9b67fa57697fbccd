"""The authority's folder: who was given which certificate, and what was revoked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gapsl.common.errors import InputError
from gapsl.common.registry import nearest
from gapsl.network.tls.certificates import (
    CA_DAYS,
    LEAF_DAYS,
    Pair,
    new_ca,
    new_device,
    new_list,
    new_server,
)
from gapsl.network.tls.changes import Draft, changing, settled
from gapsl.network.tls.hosts import default_hosts, hosts_of
from gapsl.network.tls.layout import CA, CA_KEY, ISSUED, REVOKED, authority_files, option
from gapsl.network.tls.names import SERVERS, check_name, check_server
from gapsl.network.tls.reading import read_certificate, read_file, read_list

SCHEMA = 1


@dataclass(frozen=True)
class Issued:
    """A certificate that was given to somebody; times are ISO 8601, in UTC."""

    name: str
    serial: str  # hexadecimal
    begins: str
    ends: str

    @property
    def kind(self) -> str:
        """What the certificate is for: server, parameter-server or device."""
        return self.name if self.name in SERVERS else "device"

    def days_left(self) -> float:
        """Return for how many days it is still valid."""
        return (datetime.fromisoformat(self.ends) - datetime.now(UTC)).total_seconds() / 86400


@dataclass(frozen=True)
class Standing:
    """A certificate, and whether it was revoked."""

    issued: Issued
    revoked: bool

    @property
    def works(self) -> bool:
        """Whether somebody can still show it."""
        return not self.revoked and self.issued.days_left() > 0


class Authority:
    """Gives certificates to servers and devices, and takes them back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.is_dir():
            raise self._missing()
        with settled(folder):
            self.certificate = self._certificate()

    @staticmethod
    def create(folder: Path, *, days: int = CA_DAYS) -> Authority:
        """Make an authority in a folder that has none; one that is there is never overwritten."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make {folder}: {error.strerror}; choose another with --folder"
            ) from None
        with changing(folder) as draft:
            for name in (CA, CA_KEY):
                if (folder / name).exists():
                    raise InputError(
                        f"{folder / name} exists already, and is never overwritten: all certificates of its "
                        "fleet hang on it; choose another folder with --folder"
                    )
            ca = new_ca(days=days)
            draft.write(".gitignore", b"*\n")  # keys do not belong into anybody's history
            draft.write(CA, ca.certificate_pem)
            draft.write(CA_KEY, ca.key_pem, secret=True)
            draft.write(REVOKED, new_list(ca, {}, number=0))
            _write_index(draft, [])
        return Authority(folder)

    def issue_server(
        self, name: str, hosts: Iterable[str], *, days: int | None = None, force: bool = False
    ) -> Issued:
        """Give a server its certificate, for the hosts that devices reach it under."""
        check_server(name)
        hosts = list(hosts)
        return self._issue(
            name,
            lambda ca: new_server(ca, name, hosts, days=days or LEAF_DAYS),
            f"gapsl certs server --name {name}",
            force,
        )

    def issue_device(self, name: str, *, days: int | None = None, force: bool = False) -> Issued:
        """Give a device its certificate."""
        check_name(name)
        return self._issue(
            name, lambda ca: new_device(ca, name, days=days or LEAF_DAYS), f"gapsl certs device {name}", force
        )

    def revoke(self, name: str) -> int:
        """Revoke every certificate a device was ever given; returns how many were not revoked before."""
        if name in SERVERS:
            raise InputError(
                "a server's certificate cannot be revoked: devices do not read the list. If others have "
                "its key, make a new authority in another folder (gapsl certs init --folder FOLDER) and "
                "give every machine its files anew"
            )
        with changing(self.folder) as draft:
            issued = self._index()
            serials = {int(one.serial, 16) for one in issued if one.name == name}
            if not serials:
                devices = {one.name for one in issued if one.name not in SERVERS}
                hint = nearest(name, devices) if devices else "no device has one yet"
                raise InputError(f"no certificate was issued to {name!r}; {hint}")
            earlier = read_list(self.folder / REVOKED, self.certificate)
            fresh = serials - earlier.serials.keys()
            if fresh:
                serials_since = {**earlier.serials, **dict.fromkeys(fresh, datetime.now(UTC))}
                draft.write(REVOKED, new_list(self._pair(), serials_since, number=earlier.number + 1))
        return len(fresh)

    def standings(self) -> list[Standing]:
        """Return every certificate that was issued, the newest last."""
        with settled(self.folder):
            issued = self._index()
            revoked = read_list(self.folder / REVOKED, self.certificate).serials
        return [Standing(one, int(one.serial, 16) in revoked) for one in issued]

    def of(self, name: str) -> list[Standing]:
        """Return the certificates of a name, the newest last."""
        return [standing for standing in self.standings() if standing.issued.name == name]

    def hosts(self, name: str) -> list[str]:
        """Return the hosts that a server's certificate is for; if it has none yet, this machine's."""
        path = authority_files(self.folder, check_server(name)).certificate
        return hosts_of(read_certificate(path)) if path.exists() else default_hosts()

    def _issue(self, name: str, make: Callable[[Pair], Pair], command: str, force: bool) -> Issued:
        files = authority_files(self.folder, name)
        with changing(self.folder) as draft:
            for path in () if force else (files.certificate, files.key):
                if path.exists():
                    again = f"{command} --force{option(self.folder)}"
                    raise InputError(f"{path} exists already; to issue a new one in its place: {again}")
            pair = make(self._pair())
            issued = Issued(
                name,
                f"{pair.certificate.serial_number:032x}",
                pair.certificate.not_valid_before_utc.isoformat(),
                pair.certificate.not_valid_after_utc.isoformat(),
            )
            draft.write(str(files.certificate.relative_to(self.folder)), pair.certificate_pem)
            draft.write(str(files.key.relative_to(self.folder)), pair.key_pem, secret=True)
            _write_index(draft, [*self._index(), issued])
        return issued

    def _certificate(self) -> x509.Certificate:
        if not (self.folder / CA).exists():
            raise self._missing()
        return read_certificate(self.folder / CA)

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
                return [Issued(**one) for one in issued]
        except (ValueError, TypeError, KeyError):
            raise InputError(f"{path} is damaged; restore it from a copy") from None
        raise InputError(
            f"{path} has schema {schema!r}, this gapsl reads {SCHEMA}; use the one that wrote it"
        )

    def _missing(self) -> InputError:
        return InputError(
            f"there is no authority in {self.folder}; make one with: gapsl certs init{option(self.folder)}"
        )


def _write_index(draft: Draft, issued: list[Issued]) -> None:
    content = {"schema": SCHEMA, "certificates": [asdict(one) for one in issued]}
    draft.write(ISSUED, (json.dumps(content, indent=1) + "\n").encode())
