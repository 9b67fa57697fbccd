"""Certificates and keys, made in memory: an authority's, a server's, a device's, and the list of the revoked.

All keys are ECDSA on P-256, all signatures SHA-256. A certificate says in its extensions what it is for, and
grpc checks that on both ends: with a device's, nobody can pose as a server.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from gapsl.common.errors import InputError
from gapsl.network.tls.hosts import host_name
from gapsl.network.tls.names import check_name

CA_DAYS = 3650
LEAF_DAYS = 365
DEVICE_URI = "gapsl:device:"
SERVING, JOINING = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH

_SKEW = timedelta(minutes=5)  # valid a little before it is made: clocks of devices are behind
_SERIAL_BITS = 128


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


def new_ca(*, days: int = CA_DAYS, now: datetime | None = None) -> Pair:
    """Make an authority; it signs certificates of servers and devices, and none of further authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own: with two authorities around, a certificate says which of them it is from.
    name = _common_name(f"gapsl CA {secrets.token_hex(4)}")
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        _builder(name, key, days, now or datetime.now(UTC))
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False)
    )
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
    issuer = ca.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(_common_name(common_name), key, days, begin)
        .issuer_name(ca.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), False)
    )
    return Pair(builder.sign(ca.key, hashes.SHA256()), key)


def new_list(ca: Pair, revoked: Mapping[int, datetime], *, number: int) -> bytes:
    """Return a revocation list (PEM): serial numbers, and since when they are revoked."""
    issuer = ca.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(ca.certificate.subject)
        .last_update(min(datetime.now(UTC), ca.certificate.not_valid_after_utc) - _SKEW)
        .next_update(ca.certificate.not_valid_after_utc)  # it holds until there is a newer one
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
    )
    for serial, since in revoked.items():
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(since)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(ca.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _builder(
    name: x509.Name, key: ec.EllipticCurvePrivateKey, days: int, begin: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(secrets.randbits(_SERIAL_BITS))
        .not_valid_before(begin - _SKEW)
        .not_valid_after(begin + timedelta(days=days))
    )


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certificates,
        key_cert_sign=certificates,
        crl_sign=certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
