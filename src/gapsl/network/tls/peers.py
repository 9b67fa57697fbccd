"""Who calls: the check of a device's certificate that grpc leaves to us.

grpc has verified at the handshake that the certificate is from our authority, of a device and valid. But it
reads no revocation list, a connection outlives its handshake by weeks, and a resumed TLS session is not
verified again. So a server asks `Peers.identify` when a stream begins, and from then on as often as a
revocation is to take effect.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.x509.oid import NameOID

from gapsl.common.errors import InputError
from gapsl.network.protocol import wire_pb2 as wire
from gapsl.network.protocol.errors import WireError
from gapsl.network.tls.certificates import DEVICE_URI, read_certificate, read_list
from gapsl.network.tls.names import CA, REVOKED, why_not_a_name

log = logging.getLogger(__name__)

AuthContext = Mapping[str, Sequence[bytes]]


class Peers:
    """The devices that a server with this folder serves; it follows the list of the revoked while it runs.

    A list that cannot be read, is half copied or older than the one read before changes nothing: what is
    revoked stays revoked.
    """

    def __init__(self, folder: Path) -> None:
        self._ca, self._path = read_certificate(folder / CA), folder / REVOKED
        if not self._path.exists():
            raise InputError(f"there is no {self._path}; copy it from the authority's folder, as --pack does")
        self._seen = self._stamp()  # before reading, so that a change in between is read later
        self._list = read_list(self._path, self._ca)

    def refuses(self, certificate: x509.Certificate) -> bool:
        """Say whether a certificate is revoked."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            self._read_again()
        return certificate.serial_number in self._list.serials

    def _read_again(self) -> None:
        try:
            newer = read_list(self._path, self._ca)
        except InputError as error:
            log.warning("%s; going on with the list read before", error)
            return
        if newer.number < self._list.number:
            log.warning("%s is older than the list read before; going on with that", self._path)
            return
        self._list = newer
        log.info("%s was read again: %d revoked certificates", self._path, len(newer.serials))

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def caller(self, context: grpc.ServicerContext) -> str:
        """Return the name of the device that calls."""
        shown: Any = context.auth_context()  # its values are lists, whatever its stubs say
        return self.identify(shown)

    def identify(self, auth_context: AuthContext) -> str:
        """Return the name of a device; `auth_context` is what grpc knows of whoever calls.

        A WireError says why it is not a device of ours, for its operator and the log.
        """
        shown = auth_context.get("x509_pem_cert", ())
        if len(shown) != 1:
            raise WireError(wire.IDENTITY, "no certificate was shown; join with --certs")
        try:
            certificate = parse(shown[0])
            name = _device_name(certificate)
            certificate.verify_directly_issued_by(self._ca)
        except Exception:  # of many kinds: the bytes are somebody else's choice
            raise WireError(wire.IDENTITY, "the certificate is not one of a device of this fleet") from None
        now = datetime.now(UTC)
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
            raise WireError(
                wire.EXPIRED,
                f"the certificate of {name} is valid from {begins:%Y-%m-%d} to {ends:%Y-%m-%d}, the server's "
                f"clock says {now:%Y-%m-%d}; set the clock, or renew it: gapsl certs device {name} --force",
            )
        if self.refuses(certificate):
            raise WireError(
                wire.IDENTITY, f"the certificate of {name} is revoked; issue a new one to let {name} in again"
            )
        return name


def parse(certificate: bytes) -> x509.Certificate:
    """Read a certificate from PEM or DER."""
    if certificate.lstrip().startswith(b"-----BEGIN"):
        return x509.load_pem_x509_certificate(certificate)
    return x509.load_der_x509_certificate(certificate)


def _device_name(certificate: x509.Certificate) -> str:
    """Return the one name that the certificate says twice, raise ValueError if it does not."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    ours = [
        uri for uri in names.get_values_for_type(x509.UniformResourceIdentifier) if uri.startswith("gapsl:")
    ]
    common = [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if len(ours) != 1 or len(common) != 1 or ours[0] != DEVICE_URI + common[0] or why_not_a_name(common[0]):
        raise ValueError("no device's names")
    return common[0]
