"""Certificates: what is in them, who is recognised by them, where they lie, and when they are needed."""

from __future__ import annotations

import importlib
import os
import re
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from gapsl.cli import certs
from gapsl.common.errors import InputError, Unavailable
from gapsl.network.protocol.errors import WireError
from gapsl.network.serving import check_free
from gapsl.network.tls.authority import Authority, write_in_order
from gapsl.network.tls.certificates import (
    DEVICE_URI,
    JOINING,
    Pair,
    new_ca,
    new_device,
    new_leaf,
    new_list,
    new_server,
)
from gapsl.network.tls.credentials import check_address, choose_security, is_loopback, rehearse
from gapsl.network.tls.names import Files, authority_files, check_name, files_of, why_not_a_name
from gapsl.network.tls.peers import Peers, parse

CA = new_ca()
LONG_AGO = datetime.now(UTC) - timedelta(days=400)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "certs")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def name_of(peers: Peers, context: dict[str, list[bytes]]) -> str | None:
    """Return the name of the device that calls, None for anybody else."""
    try:
        return peers.identify(context)
    except WireError:
        return None


def shown(pem: bytes) -> dict[str, list[bytes]]:
    """What grpc says of a peer."""
    return {"transport_security_type": [b"ssl"], "x509_pem_cert": [pem]}


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- what a certificate says


def extension(pair: Pair, kind: type[x509.ExtensionType]) -> x509.Extension:
    return pair.certificate.extensions.get_extension_for_class(kind)


def test_an_authority_signs_certificates_and_lists_and_nothing_else() -> None:
    constraints = extension(CA, x509.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    usage = extension(CA, x509.KeyUsage)
    assert usage.critical
    assert (usage.value.key_cert_sign, usage.value.crl_sign, usage.value.digital_signature) == (
        True,
        True,
        False,
    )
    assert 3649 <= (CA.certificate.not_valid_after_utc - datetime.now(UTC)).days <= 3650


@pytest.mark.parametrize(
    ("pair", "purpose"),
    [
        (new_server(CA, "server", ["localhost", "10.0.0.5", "::1"]), ExtendedKeyUsageOID.SERVER_AUTH),
        (new_device(CA, "cam-1"), ExtendedKeyUsageOID.CLIENT_AUTH),
    ],
    ids=["server", "device"],
)
def test_a_leaf_is_for_one_purpose_and_signs_nothing(pair: Pair, purpose: x509.ObjectIdentifier) -> None:
    constraints = extension(pair, x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value.ca is False
    usage = extension(pair, x509.KeyUsage)
    assert usage.critical
    assert (usage.value.digital_signature, usage.value.key_cert_sign, usage.value.crl_sign) == (
        True,
        False,
        False,
    )
    assert list(extension(pair, x509.ExtendedKeyUsage).value) == [purpose]
    issuer = extension(pair, x509.AuthorityKeyIdentifier).value.key_identifier
    assert issuer == extension(CA, x509.SubjectKeyIdentifier).value.digest
    assert isinstance(pair.key.curve, ec.SECP256R1)
    assert isinstance(pair.certificate.signature_hash_algorithm, hashes.SHA256)
    assert pair.certificate.not_valid_before_utc < datetime.now(UTC) - timedelta(minutes=4), "clocks differ"
    assert 364 <= (pair.certificate.not_valid_after_utc - datetime.now(UTC)).days <= 365
    pair.certificate.verify_directly_issued_by(CA.certificate)


def test_names_are_in_the_certificates() -> None:
    names = extension(
        new_server(CA, "server", ["a.example", "10.0.0.5", "::1"]), x509.SubjectAlternativeName
    ).value
    assert names.get_values_for_type(x509.DNSName) == ["a.example"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.5", "::1"]
    device = new_device(CA, "cam-1")
    names = extension(device, x509.SubjectAlternativeName).value
    assert [str(one.value) for one in names] == ["gapsl:device:cam-1"]
    assert device.certificate.subject.rfc4514_string() == "CN=cam-1"


def test_serials_are_random_and_of_128_bits() -> None:
    serials = [new_device(CA, "a").certificate.serial_number for _ in range(20)]
    assert len(set(serials)) == 20
    assert 2**100 < max(serials) < 2**128


@pytest.mark.parametrize(
    "host", ["", "a b", "host:50051", "[::1]", "*.example.org", "bücher.example", "10.0.0.300", "-a", "a..b"]
)
def test_hosts_that_are_none_are_refused(host: str) -> None:
    with pytest.raises(InputError, match="neither a DNS name nor an IP address"):
        new_server(CA, "server", [host])


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_where_a_server_listens_is_not_what_it_is_called(host: str) -> None:
    with pytest.raises(InputError, match="address that devices call it by"):
        new_server(CA, "server", [host])


def test_nothing_outlives_its_authority() -> None:
    with pytest.raises(InputError, match="valid for 29 more days; give fewer --days"):
        new_device(new_ca(days=30), "a", days=31)


# --- names


@given(st.text(st.sampled_from("aZ09._-/\\ \n\0é:*~"), max_size=70))
@example("a\n")
@example("../a")
@example("a/b")
@example(".a")
@example("-a")
@example("a\0b")
@example("")
@example("x" * 65)
@example("server")
@example("Parameter-Server")
@example("ca")
@example("cam-key")
def test_a_name_is_refused_or_is_one_file_in_its_folder(name: str) -> None:
    if why_not_a_name(name):
        with pytest.raises(InputError, match="cannot be a device's name"):
            check_name(name)
        return
    files = authority_files(Path("certs"), name)
    assert files.certificate.parent == files.key.parent == Path("certs/devices")
    assert 1 <= len(name) <= 64
    assert name.isascii()
    assert name.isprintable()
    assert name[0] not in ".-"


@given(st.lists(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,10}", fullmatch=True), max_size=5, unique=True))
@example(["a", "a-key"])
@example(["ca", "revoked", "server"])
def test_no_two_names_share_a_file(names: list[str]) -> None:
    good = [name for name in names if not why_not_a_name(name)]
    for place in (authority_files, files_of):
        paths = [path for name in good for path in place(Path("none"), name)[1:]]
        assert len(set(paths)) == len(paths)
        assert Path("none/ca.pem") not in paths


def test_a_name_from_a_command_line_leads_out_of_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be a device's name"):
        files_of(tmp_path, "../server")


# --- the authority's folder


def test_private_keys_are_their_owners_from_the_start_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        authority = Authority.create(tmp_path / "certs")
        authority.issue("server", ["localhost"])
        authority.issue("cam")
        files = [
            authority.folder / "ca-key.pem",
            *(authority_files(authority.folder, n).key for n in ("server", "cam")),
        ]
        authority.pack("cam", tmp_path / "cam.tar")
    finally:
        os.umask(before)
    assert [mode(path) for path in [*files, tmp_path / "cam.tar"]] == [0o600] * 4
    assert mode(authority.folder) == mode(authority.folder / "devices") == 0o700


def test_an_authority_is_never_overwritten(authority: Authority) -> None:
    authority.issue("cam")
    before = tree(authority.folder)
    with pytest.raises(InputError, match="is never overwritten"):
        Authority.create(authority.folder)
    (authority.folder / "ca.pem").unlink()
    with pytest.raises(InputError, match=r"ca-key\.pem exists already"):
        Authority.create(authority.folder)
    del before["ca.pem"]
    assert tree(authority.folder) == before


@pytest.mark.parametrize("missing", [None, "certificate", "key"])
def test_a_certificate_or_key_is_overwritten_only_with_force(
    authority: Authority, missing: str | None
) -> None:
    authority.issue("cam")
    files = authority_files(authority.folder, "cam")
    if missing:
        getattr(files, missing).unlink()
    before = tree(authority.folder)
    with pytest.raises(InputError, match="gapsl certs device cam --force --folder"):
        authority.issue("cam")
    assert tree(authority.folder) == before
    issued = authority.issue("cam", force=True)
    assert [one.serial for one in authority.of("cam")][1:] == [issued.serial], "both are remembered"
    rehearse(files, "", serving=False)


def test_revoking_takes_back_every_certificate_of_a_name_and_of_no_other(authority: Authority) -> None:
    old = []
    for name in ("cam", "cam", "mic"):
        authority.issue(name, force=True)
        old.append(authority_files(authority.folder, name).certificate.read_bytes())
    assert authority.revoke("cam") == 2
    assert authority.revoke("cam") == 0
    revoked = Peers(authority.folder)
    assert [revoked.refuses(parse(pem)) for pem in old] == [True, True, False]
    authority.issue("cam", force=True)
    assert [one.revoked for one in authority.of("cam")] == [True, True, False]
    assert not revoked.refuses(parse(authority_files(authority.folder, "cam").certificate.read_bytes()))


def test_what_cannot_be_revoked(authority: Authority) -> None:
    with pytest.raises(InputError, match="no device has one yet"):
        authority.revoke("cam")
    authority.issue("cam-1")
    with pytest.raises(InputError, match="did you mean 'cam-1'"):
        authority.revoke("cam-2")
    authority.issue("server", ["localhost"])
    with pytest.raises(InputError, match="devices do not read the list"):
        authority.revoke("server")


def test_a_server_that_is_renewed_keeps_its_hosts(authority: Authority) -> None:
    assert {"localhost", "127.0.0.1", "::1"} <= set(authority.hosts("server"))
    authority.issue("server", ["a.example", "10.0.0.5"])
    assert authority.hosts("server") == ["a.example", "10.0.0.5"]


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("issued.json", b"{", "issued.json is damaged"),
        ("issued.json", b'{"schema": 2, "certificates": []}', "has schema 2"),
        ("issued.json", b'{"schema": 1, "certificates": [{"name": "a"}]}', "issued.json is damaged"),
        ("ca-key.pem", b"", "no private key"),
        ("ca-key.pem", new_ca().key_pem, "is not the key of"),
        ("revoked.pem", b"", None),
    ],
)
def test_a_damaged_folder_is_told_and_left_alone(
    authority: Authority, file: str, content: bytes, words: str | None
) -> None:
    authority.issue("cam")
    (authority.folder / file).write_bytes(content)
    before = tree(authority.folder)
    with pytest.raises(InputError, match=words or "revoked.pem is no revocation list"):
        authority.issue("mic") if words else authority.revoke("cam")
    assert tree(authority.folder) == before


def test_a_file_that_cannot_be_written_changes_no_other(authority: Authority) -> None:
    before, blocked = tree(authority.folder), authority.folder / "no-folder"
    blocked.touch()
    with pytest.raises(InputError, match="nothing was changed"):
        write_in_order(authority.folder, {blocked / "a.pem": b"", authority.folder / "ca.pem": b"other"})
    blocked.unlink()
    assert tree(authority.folder) == before, "and no draft is left"


def test_what_a_killed_command_left_is_removed_and_an_earlier_versions_change_is_not_lost(
    authority: Authority,
) -> None:
    authority.issue("cam")
    (authority.folder / "devices" / ".cam-key.pem.12345").touch()
    authority.revoke("cam")
    assert not list(authority.folder.rglob(".cam*"))
    (authority.folder / ".pending").mkdir()
    with pytest.raises(InputError, match=r"\.pending has the files of a change .* move them to their places"):
        authority.issue("mic")


def test_a_key_without_its_certificate_is_told_from_a_pair(authority: Authority) -> None:
    authority.issue("cam")
    issued = authority.current("cam")
    assert issued is not None
    assert issued.works
    old = authority_files(authority.folder, "cam").certificate.read_bytes()
    authority.issue("cam", force=True)
    authority_files(authority.folder, "cam").certificate.write_bytes(old)
    assert authority.current("cam") is None, "the key beside it is the next certificate's"


def test_a_full_disk_changes_nothing(authority: Authority) -> None:
    before, limit = tree(authority.folder), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        with pytest.raises(InputError, match=r"cannot write to .*; nothing was changed"):
            authority.issue("cam")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert tree(authority.folder) == before
    assert not authority.of("cam")


def test_a_pack_has_a_folder_with_the_three_files_for_their_owner_alone(
    authority: Authority, tmp_path: Path
) -> None:
    authority.issue("cam")
    files = authority_files(authority.folder, "cam")
    authority.pack("cam", tmp_path / "cam.tar")
    with tarfile.open(tmp_path / "cam.tar") as tar:
        assert {one.name: one.mode for one in tar} == {
            "cam": 0o700,
            "cam/ca.pem": 0o600,
            "cam/cam.pem": 0o600,
            "cam/cam-key.pem": 0o600,
        }
        tar.extractall(tmp_path / "there", filter="data")
    carried = files_of(tmp_path / "there" / "cam", "cam")
    rehearse(carried, "", serving=False)
    assert carried.key.read_bytes() == files.key.read_bytes()
    assert mode(carried.key) == 0o600


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl here to ask")
def test_openssl_agrees(authority: Authority) -> None:
    authority.issue("server", ["localhost", "127.0.0.1"])
    authority.issue("cam")

    def verify(purpose: str, name: str, *options: str) -> bool:
        folder = authority.folder
        lists = [
            "-CAfile",
            folder / "ca.pem",
            "-CRLfile",
            folder / "revoked.pem",
            "-crl_check",
            "-x509_strict",
        ]
        certificate = authority_files(folder, name).certificate
        return not subprocess.run(
            ["openssl", "verify", *lists, "-purpose", purpose, *options, certificate], capture_output=True
        ).returncode

    assert verify("sslserver", "server", "-verify_hostname", "localhost")
    assert verify("sslserver", "server", "-verify_ip", "127.0.0.1")
    assert not verify("sslserver", "server", "-verify_hostname", "elsewhere")
    assert verify("sslclient", "cam")
    assert not verify("sslserver", "cam")
    assert not verify("sslclient", "server")
    authority.revoke("cam")
    assert not verify("sslclient", "cam")


def test_the_list_fits_80_columns(authority: Authority) -> None:
    long = "n" * 64
    for name in (long, "cam"):
        authority.issue(name)
    authority.issue("parameter-server", ["localhost"])
    authority.revoke("cam")
    console = Console(file=StringIO(), width=80)
    console.print(certs.table(authority.issued()))
    printed = console.file.getvalue()
    assert max(cell_len(line) for line in printed.splitlines()) <= 80
    assert printed.count("n" * 16) >= 2
    assert re.search(r"^cam +device +365 days +yes *$", printed, re.M)
    assert re.search(r"^parameter-server +parameter-server +365 days *$", printed, re.M)


def test_a_device_needs_no_cryptography_and_who_does_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in sys.modules if name.startswith("gapsl.network")]:
        monkeypatch.delitem(sys.modules, name)
    for needed in ("names", "credentials"):
        importlib.import_module(f"gapsl.network.tls.{needed}")
    with pytest.raises(InputError, match=r"pip install \"gapsl\[tls\]\""):
        certs._authority()


# --- who calls


@pytest.fixture
def ca(authority: Authority) -> Pair:
    key = serialization.load_pem_private_key((authority.folder / "ca-key.pem").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return Pair(authority.certificate, key)


def test_a_device_is_recognised(authority: Authority) -> None:
    authority.issue("cam")
    pem = authority_files(authority.folder, "cam").certificate.read_bytes()
    assert name_of(Peers(authority.folder), shown(pem)) == "cam"


def uri(text: str) -> x509.GeneralName:
    return x509.UniformResourceIdentifier(text)


STRANGERS = {
    "another authority's": lambda ca: new_device(CA, "cam"),
    "a server": lambda ca: new_server(ca, "server", ["localhost"]),
    "the authority": lambda ca: ca,
    "no name but the common one": lambda ca: new_leaf(ca, "cam", [x509.DNSName("cam")], JOINING),
    "another common name": lambda ca: new_leaf(ca, "mic", [uri(DEVICE_URI + "cam")], JOINING),
    "two names": lambda ca: new_leaf(ca, "cam", [uri(DEVICE_URI + "cam"), uri(DEVICE_URI + "mic")], JOINING),
    "another kind": lambda ca: new_leaf(ca, "cam", [uri("gapsl:server:cam")], JOINING),
    "a bad name": lambda ca: new_leaf(ca, "../cam", [uri(DEVICE_URI + "../cam")], JOINING),
    "a reserved name": lambda ca: new_leaf(ca, "server", [uri(DEVICE_URI + "server")], JOINING),
    "expired": lambda ca: new_device(ca, "cam", now=LONG_AGO),
    "not yet valid": lambda ca: new_device(ca, "cam", now=datetime.now(UTC) + timedelta(days=2)),
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_stranger_is_not(authority: Authority, ca: Pair, stranger: str) -> None:
    peers = Peers(authority.folder)
    assert name_of(peers, shown(new_device(ca, "cam").certificate_pem)) == "cam"
    assert name_of(peers, shown(STRANGERS[stranger](ca).certificate_pem)) is None


@pytest.mark.parametrize(
    "context",
    [
        {},
        {"x509_pem_cert": []},
        {"x509_common_name": [b"cam"], "x509_subject_alternative_name": [b"gapsl:device:cam"]},
        shown(b""),
        shown(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        shown(b"\x30\x82\xff\xff"),
    ],
)
def test_who_shows_no_certificate_is_nobody(authority: Authority, context: dict[str, list[bytes]]) -> None:
    assert name_of(Peers(authority.folder), context) is None


def test_a_certificate_with_a_changed_byte_is_nobodys(authority: Authority, ca: Pair) -> None:
    peers = Peers(authority.folder)
    certificate = new_device(ca, "cam").certificate
    der, signed = certificate.public_bytes(serialization.Encoding.DER), certificate.tbs_certificate_bytes
    assert name_of(peers, shown(der)) == "cam"
    for place in range(der.index(signed), der.index(signed) + len(signed)):
        for change in (0x01, 0x80, 0xFF):
            changed = bytes([*der[:place], der[place] ^ change, *der[place + 1 :]])
            assert name_of(peers, shown(changed)) is None, (place, change)


def test_why_somebody_is_refused_is_said(authority: Authority, ca: Pair) -> None:
    peers = Peers(authority.folder)
    with pytest.raises(WireError, match="join with --certs"):
        peers.identify({})
    with pytest.raises(WireError, match="renew it: gapsl certs device cam --force"):
        peers.identify(shown(new_device(ca, "cam", now=LONG_AGO).certificate_pem))
    authority.issue("cam")
    authority.revoke("cam")
    with pytest.raises(WireError, match="the certificate of cam is revoked"):
        peers.identify(shown(authority_files(authority.folder, "cam").certificate.read_bytes()))


# --- the list of the revoked, while a server runs


def test_the_list_is_followed_and_never_goes_back(authority: Authority, ca: Pair) -> None:
    authority.issue("cam")
    certificate = authority_files(authority.folder, "cam").certificate
    der = x509.load_pem_x509_certificate(certificate.read_bytes()).public_bytes(serialization.Encoding.DER)
    path = authority.folder / "revoked.pem"
    before = path.read_bytes()
    revoked = Peers(authority.folder)
    assert not revoked.refuses(parse(certificate.read_bytes()))
    authority.revoke("cam")
    assert revoked.refuses(parse(certificate.read_bytes()))
    assert revoked.refuses(parse(der))
    for worse in (before, b"", path.read_bytes()[:100], new_list(new_ca(), {}, number=9)):
        path.write_bytes(worse)
        assert revoked.refuses(parse(der)), "what is revoked stays revoked"
    path.unlink()
    assert revoked.refuses(parse(der))
    path.write_bytes(new_list(ca, {}, number=9))
    assert not revoked.refuses(parse(der)), "a newer list of the authority's own is believed"


@pytest.mark.parametrize("content", [None, b"", new_list(new_ca(), {}, number=0)])
def test_a_server_does_not_start_without_its_list(authority: Authority, content: bytes | None) -> None:
    path = authority.folder / "revoked.pem"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(InputError, match=r"revoked\.pem"):
        Peers(authority.folder)


# --- the handshake with oneself


def stored(folder: Path, ca: Pair, pair: Pair) -> Files:
    files = Files(folder / "ca.pem", folder / "a.pem", folder / "a-key.pem")
    for path, data in zip(files, (ca.certificate_pem, pair.certificate_pem, pair.key_pem), strict=True):
        path.write_bytes(data)
    return files


@pytest.mark.parametrize("serving", [False, True])
def test_files_that_are_good(tmp_path: Path, serving: bool) -> None:
    pair = new_server(CA, "server", ["localhost"]) if serving else new_device(CA, "a")
    rehearse(stored(tmp_path, CA, pair), "", serving=serving)
    with pytest.raises(InputError, match="purpose"):
        rehearse(stored(tmp_path, CA, pair), "", serving=not serving)


def test_files_that_peers_would_refuse(tmp_path: Path) -> None:
    command = "gapsl certs device a"
    soon = datetime.now(UTC) + timedelta(days=2)
    for pair, words in (
        (new_device(CA, "a", now=LONG_AGO), f"has expired .*{command} --force"),
        (new_device(CA, "a", now=soon), "set the clock"),
        (new_device(new_ca(), "a"), "does not go with"),
        (Pair(new_device(CA, "a").certificate, new_device(CA, "a").key), "does not belong to"),
    ):
        with pytest.raises(InputError, match=words):
            rehearse(stored(tmp_path, CA, pair), command, serving=False)


@pytest.mark.parametrize("which", ["ca", "certificate", "key"])
def test_files_that_are_missing_or_something_else(tmp_path: Path, which: str) -> None:
    files = stored(tmp_path, CA, new_device(CA, "a"))
    path: Path = getattr(files, which)
    path.write_bytes(b"something else")
    with pytest.raises(InputError, match=path.name):
        rehearse(files, "", serving=False)
    path.unlink()
    with pytest.raises(InputError, match=rf"{path.name} is missing.*gapsl certs device a"):
        rehearse(files, "gapsl certs device a", serving=False)


def test_a_key_with_a_password_is_refused_and_not_asked_for(tmp_path: Path) -> None:
    pair = new_device(CA, "a")
    files = stored(tmp_path, CA, pair)
    locked = serialization.BestAvailableEncryption(b"word")
    files.key.write_bytes(
        pair.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    )
    with pytest.raises(InputError, match="cannot be read with"):
        rehearse(files, "", serving=False)


# --- TLS or plain text


@pytest.mark.parametrize(
    "address",
    [
        "localhost:50051", "LOCALHOST:1", "localhost", "127.0.0.1:50051", "127.8.9.1:1", "[::1]:50051", "::1",
        "unix:/run/gapsl", "unix:///run/gapsl", "unix-abstract:gapsl", "[::ffff:127.0.0.1]:1",
    ],
)  # fmt: skip
def test_addresses_on_this_machine(address: str) -> None:
    assert is_loopback(address)
    assert choose_security(address, None, plain=False) is None


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0:50051", "[::]:50051", ":50051", "", "10.0.0.5:50051", "example.org:1", "localhost.org:1",
        "127.0.0.1.example.org:1", "128.0.0.1:1", "::2", "[::2]:1", "ipv4:127.0.0.1:1,10.0.0.5:1", "127.1:1",
        "dns://127.0.0.1/example.org:1", "dns:///example.org:1", "example.org", "[::ffff:10.0.0.5]:1",
        "localhost@example.org:1", "http://localhost:1", "xds:localhost", "dns:localhost:1",
        "ipv4:127.0.0.1:1",
    ],
)  # fmt: skip
def test_addresses_elsewhere(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not is_loopback(address)
    with pytest.raises(InputError, match=r"certs init.*certs server.*certs device.*--insecure"):
        choose_security(address, None, plain=False)
    assert choose_security(address, None, plain=True) is None, "asked for by name"
    Path("certs").mkdir()
    assert choose_security(address, None, plain=False) == Path("certs")


@given(st.text(st.sampled_from("localhostunixdns:[]/.,1270%é"), max_size=30))
def test_any_address_has_an_answer(address: str) -> None:
    assert is_loopback(address) in (True, False)


def test_certificates_that_were_given_are_used_on_this_machine_too(tmp_path: Path) -> None:
    assert choose_security("localhost:1", tmp_path, plain=False) == tmp_path
    with pytest.raises(InputError, match="contradict each other"):
        choose_security("localhost:1", tmp_path, plain=True)
    with pytest.raises(InputError, match="no certificates in"):
        choose_security("localhost:1", tmp_path / "nowhere", plain=False)
    with pytest.raises(InputError, match=f"no certificates in {Path.cwd()}/nowhere"):
        choose_security("localhost:1", Path("nowhere"), plain=False)


@pytest.mark.parametrize(
    "address", ["", "localhost", ":7443", "localhost:99999", "127.0.0.1:abc", "localhost:"]
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(InputError, match="is no address; give HOST:PORT"):
        check_address(address)


def test_a_port_that_another_program_has_at_one_address_of_the_host_is_refused():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(Unavailable, match="another program is at 127"):
            check_free(f"localhost:{port}")
        check_free("localhost:0")
    check_free(f"localhost:{port}")


def test_an_address_that_the_machine_does_not_have_is_an_outage():
    with pytest.raises(Unavailable, match="this machine has no such address"):
        check_free("192.0.2.1:7443")
