"""Certificates and revocation lists read from files, with a message for whoever has to mend them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from gapsl.common.errors import InputError


@dataclass(frozen=True)
class RevocationList:
    """Serial numbers and since when they are revoked; a list with a higher number is newer."""

    number: int
    serials: Mapping[int, datetime]


def read_file(path: Path) -> bytes:
    """Return a file's content."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def read_certificate(path: Path) -> x509.Certificate:
    """Read a certificate."""
    data = read_file(path)
    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError:
        raise InputError(f"{path} is no certificate in PEM form; copy it from the authority again") from None


def read_list(path: Path, ca: x509.Certificate) -> RevocationList:
    """Read a revocation list that this authority has signed."""
    data = read_file(path)
    try:
        found = x509.load_pem_x509_crl(data)
        number = found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except (ValueError, x509.ExtensionNotFound):
        raise InputError(f"{path} is no revocation list; copy it from the authority again") from None
    key = ca.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not found.is_signature_valid(key):
        raise InputError(f"{path} is of another authority than the ca.pem beside it; copy both again")
    return RevocationList(number, {one.serial_number: one.revocation_date_utc for one in found})
