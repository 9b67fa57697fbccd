"""Mutual TLS with real certificates, grpc and sockets: who gets in, who does not, and who is turned out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from authorities import LONG_AGO, expired_device, pair_of
from cryptography import x509

from gapsl.common.errors import InputError
from gapsl.network.protocol.errors import WireError
from gapsl.network.tls.authority import Authority
from gapsl.network.tls.certificates import JOINING, Pair, new_ca, new_device, new_leaf, new_server
from gapsl.network.tls.credentials import channel_credentials, device_credentials, server_credentials
from gapsl.network.tls.names import Files, authority_files
from gapsl.network.tls.peers import Peers

REFUSED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority.create(tmp_path / "certs")
    made.issue("server", ["localhost", "127.0.0.1", "::1"])
    made.issue("cam")
    return made


@pytest.fixture
def ca(authority: Authority) -> Pair:
    return pair_of(authority.folder)


@contextmanager
def serving(credentials: grpc.ServerCredentials, peers: Peers, host: str = "localhost") -> Iterator[int]:
    """A server that answers with its caller's name."""

    def who(request: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return peers.identify(context.auth_context()).encode() + b" " + request
        except WireError as error:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(who)

    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, handlers=[Handler()])
        port = server.add_secure_port(f"{host}:0", credentials)
        server.start()
        yield port
        server.stop(0).wait()


@contextmanager
def calling(
    credentials: grpc.ChannelCredentials, port: int, host: str = "localhost"
) -> Iterator[Callable[[], str]]:
    with grpc.secure_channel(f"{host}:{port}", credentials) as channel:
        call = channel.unary_unary("/gapsl.Test/Who")
        yield lambda: call(b"here", timeout=20).decode()


def refused(credentials: grpc.ChannelCredentials, port: int, host: str = "localhost") -> grpc.StatusCode:
    with calling(credentials, port, host) as call, pytest.raises(grpc.RpcError) as error:
        call()
    return error.value.code()


def stored(folder: Path, ca: bytes, pair: Pair) -> Files:
    folder.mkdir()
    files = Files(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
    for path, data in zip(files, (ca, pair.certificate_pem, pair.key_pem), strict=True):
        path.write_bytes(data)
    return files


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_a_device_gets_in_and_is_known_by_its_certificate(authority: Authority, host: str) -> None:
    folder = authority.folder
    try:
        with (
            serving(server_credentials(folder), Peers(folder), host) as port,
            calling(device_credentials(folder, "cam"), port, host) as call,
        ):
            assert call() == "cam here"
    except RuntimeError:
        if host != "[::1]":
            raise
        pytest.skip("this machine has no IPv6")


def test_two_devices_are_told_apart(authority: Authority) -> None:
    authority.issue("mic")
    folder = authority.folder
    with serving(server_credentials(folder), Peers(folder)) as port:
        for name in ("cam", "mic"):
            with calling(device_credentials(folder, name), port) as call:
                assert call() == f"{name} here"


def test_nobody_gets_in_with_the_wrong_certificate_or_none(
    authority: Authority, ca: Pair, tmp_path: Path
) -> None:
    trusted = (authority.folder / "ca.pem").read_bytes()
    server = authority_files(authority.folder, "server")
    strangers = {
        "wrong CA": channel_credentials(*stored(tmp_path / "1", trusted, new_device(new_ca(), "cam"))),
        "expired": channel_credentials(*stored(tmp_path / "2", trusted, expired_device(ca, "cam"))),
        "server's": channel_credentials(*server),
        "none": grpc.ssl_channel_credentials(trusted),
    }
    with serving(server_credentials(authority.folder), Peers(authority.folder)) as port:
        codes = {who: refused(credentials, port) for who, credentials in strangers.items()}
        with grpc.insecure_channel(f"localhost:{port}") as channel, pytest.raises(grpc.RpcError) as error:
            channel.unary_unary("/gapsl.Test/Who")(b"", timeout=20)
        codes["plain text"] = error.value.code()
        with calling(device_credentials(authority.folder, "cam"), port) as call:
            assert call() == "cam here", "and others are not disturbed"
    assert codes == dict.fromkeys(codes, grpc.StatusCode.UNAVAILABLE), (
        "the handshake already refuses all of them"
    )


def test_a_device_talks_to_no_server_but_its_own(authority: Authority, ca: Pair, tmp_path: Path) -> None:
    folder = authority.folder
    other = new_ca()
    impostors = {
        "wrong CA": new_server(other, "server", ["localhost"]),
        "expired": new_server(ca, "server", ["localhost"], now=LONG_AGO),
        "a device's": new_device(ca, "localhost"),
        "a device's that names the host": new_leaf(ca, "cam", [x509.DNSName("localhost")], JOINING),
        "another host's": new_server(ca, "server", ["elsewhere.example"]),
    }
    codes = {}
    for who, pair in impostors.items():
        credentials = grpc.ssl_server_credentials(
            [(pair.key_pem, pair.certificate_pem)],
            ca.certificate_pem + other.certificate_pem,
            require_client_auth=True,
        )
        with serving(credentials, Peers(folder)) as port:
            codes[who] = refused(device_credentials(folder, "cam"), port)
    assert codes == dict.fromkeys(codes, grpc.StatusCode.UNAVAILABLE)


def test_a_device_that_is_revoked_is_turned_out_at_its_next_call(authority: Authority) -> None:
    authority.issue("mic")
    folder = authority.folder
    with (
        serving(server_credentials(folder), Peers(folder)) as port,
        calling(device_credentials(folder, "cam"), port) as cam,
        calling(device_credentials(folder, "mic"), port) as mic,
    ):
        assert (cam(), mic()) == ("cam here", "mic here")
        authority.revoke("cam")
        with pytest.raises(grpc.RpcError) as error:
            cam()
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert "cam is revoked" in error.value.details()
        assert mic() == "mic here"
        assert refused(device_credentials(folder, "cam"), port) is grpc.StatusCode.UNAUTHENTICATED
        authority.issue("cam", force=True)
        with calling(device_credentials(folder, "cam"), port) as call:
            assert call() == "cam here", "a new certificate lets it in again"


def test_the_parameter_server_has_a_certificate_of_its_own(authority: Authority) -> None:
    folder = authority.folder
    authority.issue("parameter-server", ["localhost"])
    with (
        serving(server_credentials(folder, "parameter-server"), Peers(folder)) as port,
        calling(device_credentials(folder, "cam"), port) as call,
    ):
        assert call() == "cam here"


def test_each_party_finds_out_by_itself_what_is_wrong_with_its_files(authority: Authority) -> None:
    folder = authority.folder
    with pytest.raises(InputError, match=r"mic\.pem is missing.*gapsl certs device mic"):
        device_credentials(folder, "mic")
    with pytest.raises(
        InputError, match=r"parameter-server\.pem is missing.*certs server --name parameter-server"
    ):
        server_credentials(folder, "parameter-server")
    key = authority_files(folder, "server").key
    key.write_bytes(authority_files(folder, "cam").key.read_bytes())
    with pytest.raises(InputError, match=r"server-key\.pem does not belong to .*server\.pem"):
        server_credentials(folder)
