"""Certificates, keys and the list of the revoked: made in memory, and read from files.

All keys are ECDSA on P-256, all signatures SHA-256. A certificate says in its extensions what it is for, and
grpc checks that on both ends: with a device's, nobody can pose as a server.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from gapsl.common.errors import InputError
from gapsl.common.reading import read_bytes
from gapsl.network.tls.names import check_name

CA_DAYS = 3650
LEAF_DAYS = 365
DEVICE_URI = "gapsl:device:"
SERVING, JOINING = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH

_SKEW = timedelta(minutes=5)  # valid a little before it is made: clocks of devices are behind
_SERIAL_BITS = 128
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


@dataclass(frozen=True)
class RevocationList:
    """Serial numbers and since when they are revoked; a list with a higher number is newer."""

    number: int
    serials: Mapping[int, datetime]


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as a file has it."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key as a file has it, not encrypted: a server has to start without a person."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def new_ca(*, days: int = CA_DAYS) -> Pair:
    """Make an authority; it signs certificates of servers and devices, and none of further authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own: with two authorities around, a certificate says which of them it is from.
    builder = _builder(f"gapsl CA {secrets.token_hex(4)}", key, days, datetime.now(UTC), None)
    return Pair(builder.sign(key, hashes.SHA256()), key)


def new_server(
    ca: Pair, name: str, hosts: Iterable[str], *, days: int = LEAF_DAYS, now: datetime | None = None
) -> Pair:
    """Make the certificate of a server that devices reach under these DNS names and IP addresses."""
    return new_leaf(ca, name, [host_name(host) for host in hosts], SERVING, days=days, now=now)


def new_device(ca: Pair, name: str, *, days: int = LEAF_DAYS, now: datetime | None = None) -> Pair:
    """Make the certificate of a device."""
    identity = x509.UniformResourceIdentifier(DEVICE_URI + check_name(name))
    return new_leaf(ca, name, [identity], JOINING, days=days, now=now)


def new_leaf(
    ca: Pair,
    common_name: str,
    names: Iterable[x509.GeneralName],
    purpose: ObjectIdentifier,
    *,
    days: int = LEAF_DAYS,
    now: datetime | None = None,
) -> Pair:
    """Make a certificate that signs no others."""
    begin = now or datetime.now(UTC)
    left = (ca.certificate.not_valid_after_utc - begin).days
    if days > left:
        raise InputError(
            f"the authority itself is valid for {max(left, 0)} more days; give fewer --days, "
            "or make a new authority in another folder with: gapsl certs init --folder FOLDER"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(common_name, key, days, begin, ca)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    return Pair(builder.sign(ca.key, hashes.SHA256()), key)


def new_list(ca: Pair, revoked: Mapping[int, datetime], *, number: int) -> bytes:
    """Return a revocation list (PEM): serial numbers, and since when they are revoked."""
    signer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(_key_identifier(ca))
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(ca.certificate.subject)
        .last_update(min(datetime.now(UTC), ca.certificate.not_valid_after_utc) - _SKEW)
        .next_update(ca.certificate.not_valid_after_utc)  # it holds until there is a newer one
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(signer, critical=False)
    )
    for serial, since in revoked.items():
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(since)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(ca.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def read_file(path: Path) -> bytes:
    """Return a file's content."""
    try:
        return read_bytes(path)
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


def default_hosts() -> list[str]:
    """Return the names this machine has for itself."""
    hosts = ["localhost", "127.0.0.1", "::1"]
    own = socket.gethostname()
    if _is_dns_name(own) and own not in hosts:
        hosts.append(own)
    return hosts


def host_name(host: str) -> x509.GeneralName:
    """Return a host as a certificate has it: a DNS name or an IP address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if not _is_dns_name(host):
            raise InputError(
                f"--host {host!r} is neither a DNS name nor an IP address; give the host alone, without "
                "a port, and an international name in its xn-- form"
            ) from None
        return x509.DNSName(host.removesuffix("."))
    if address.is_unspecified:
        raise InputError(f"--host {host} is where a server listens; give the address that devices call it by")
    return x509.IPAddress(address)


def hosts_of(certificate: x509.Certificate) -> list[str]:
    """Return the hosts that a certificate is for."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return [*names.get_values_for_type(x509.DNSName), *addresses]


def _builder(
    name: str, key: ec.EllipticCurvePrivateKey, days: int, begin: datetime, issuer: Pair | None
) -> x509.CertificateBuilder:
    """Return what all certificates have; one without an issuer is an authority's, and signs others."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    signer = own if issuer is None else _key_identifier(issuer)
    signs = issuer is None
    usage = x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(secrets.randbits(_SERIAL_BITS))
        .not_valid_before(begin - _SKEW)
        .not_valid_after(begin + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(own, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), False)
    )


def _key_identifier(issuer: Pair) -> x509.SubjectKeyIdentifier:
    return issuer.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value


def _is_dns_name(host: str) -> bool:
    labels = host.removesuffix(".").split(".")
    # A last label of digits makes it a mistyped IPv4 address.
    return len(host) <= 253 and all(map(_LABEL.fullmatch, labels)) and not labels[-1].isdecimal()
