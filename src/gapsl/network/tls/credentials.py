"""When a connection is TLS (always, but on this machine or where plain text was asked for), and with what.

Why a handshake is refused is known to the party that refuses; the other one sees a closed connection. So each
party first plays its peer's part, in memory, with the standard library alone: a device needs no more.
"""

from __future__ import annotations

import ipaddress
import ssl
from pathlib import Path
from time import strftime

import grpc

from gapsl.common.errors import InputError
from gapsl.common.reading import read_bytes
from gapsl.network.tls.names import FOLDER, Files, files_of

# Of OpenSSL's X509_V_ERR_ codes, those with a remedy of their own.
_NOT_YET_VALID, _EXPIRED = 9, 10
SOCKETS = ("unix", "unix-abstract")  # what grpc calls addresses that are no HOST:PORT
LARGEST_PORT = 65535


def choose_security(address: str, folder: Path | None, plain: bool) -> Path | None:
    """Return the folder with the certificates to use at an address, None for plain text.

    `folder` is what the user gave (--certs), `plain` whether plain text was asked for (--insecure).
    """
    if plain:
        if folder is not None:
            raise InputError("--certs and --insecure contradict each other; leave one of them out")
        return None
    if folder is None:
        if is_loopback(address):
            return None
        folder = FOLDER
    if not folder.is_dir():
        raise InputError(
            f"{address} is reached over TLS, and there are no certificates in {folder.absolute()}. Make "
            "them once with: gapsl certs init; gapsl certs server --host HOST; gapsl certs device NAME "
            "--pack - and give their folder with --certs. Only where you trust everybody on the network: "
            "--insecure"
        )
    return folder


def check_address(address: str) -> None:
    """Refuse what is neither HOST:PORT nor a socket of this machine (unix:PATH)."""
    host, _, port = address.rpartition(":")
    number = int(port) if port.isascii() and port.isdecimal() else -1
    if address.partition(":")[0] not in SOCKETS and not (host and 0 <= number <= LARGEST_PORT):
        raise InputError(f"{address!r} is no address; give HOST:PORT, for example train.example.org:7443")


def is_loopback(address: str) -> bool:
    """Say whether an address (HOST:PORT, [IPv6]:PORT, unix:PATH) cannot leave this machine.

    In doubt it can: the answer decides whether plain text is good enough.
    """
    if address.partition(":")[0] in SOCKETS:
        return True
    host, colon, port = address.rpartition(":")
    if address.startswith("["):
        host = address[1:].partition("]")[0]
    elif not colon or ":" in host or not port.isdecimal():
        host = address  # without a port
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def server_credentials(folder: Path, name: str = "server") -> grpc.ServerCredentials:
    """Return what a server listens with: nobody gets in without a certificate of the folder's authority."""
    files = files_of(folder, name)
    rehearse(files, f"gapsl certs server --name {name}", serving=True)
    pair = (files.key.read_bytes(), files.certificate.read_bytes())
    return grpc.ssl_server_credentials(
        [pair], root_certificates=files.ca.read_bytes(), require_client_auth=True
    )


def device_credentials(folder: Path, name: str) -> grpc.ChannelCredentials:
    """Return what a device calls with: its certificate, and trust in its own authority alone."""
    files = files_of(folder, name)
    rehearse(files, f"gapsl certs device {name}", serving=False)
    return channel_credentials(*files)


def channel_credentials(ca: Path, certificate: Path, key: Path) -> grpc.ChannelCredentials:
    """Return what these three files are for grpc."""
    return grpc.ssl_channel_credentials(ca.read_bytes(), key.read_bytes(), certificate.read_bytes())


def rehearse(files: Files, command: str, *, serving: bool) -> None:
    """Refuse files that peers will refuse; `command` makes new ones."""
    for path in files:
        _check_readable(path, command)
    holder = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if serving else ssl.PROTOCOL_TLS_CLIENT)
    judge = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if serving else ssl.PROTOCOL_TLS_SERVER)
    for context in (holder, judge):
        # Hosts are none of a rehearsal's business: which one is called is known only to who calls.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:  # the judge needs a certificate to serve with, and the holder does not look at it
            context.load_cert_chain(files.certificate, files.key, password="")
        except ssl.SSLError as error:
            wrong = "does not belong to" if error.reason == "KEY_VALUES_MISMATCH" else "cannot be read with"
            raise InputError(f"{files.key} {wrong} {files.certificate}; make both anew: {command}") from None
    judge.verify_mode = ssl.CERT_REQUIRED
    try:
        judge.load_verify_locations(files.ca)
        _shake_hands(holder, judge, serving=serving)
    except ssl.SSLCertVerificationError as error:
        raise InputError(_explained(files, error, command)) from None
    except ssl.SSLError as error:
        raise InputError(f"{files.ca} and {files.certificate} cannot be used: {error.reason}") from None


def _shake_hands(holder: ssl.SSLContext, judge: ssl.SSLContext, *, serving: bool) -> None:
    to_holder, to_judge = ssl.MemoryBIO(), ssl.MemoryBIO()
    held = holder.wrap_bio(to_holder, to_judge, server_side=serving)
    judging = judge.wrap_bio(to_judge, to_holder, server_side=not serving)
    unfinished = [held, judging]
    while unfinished:
        for side in list(unfinished):
            try:
                side.do_handshake()
                unfinished.remove(side)
            except ssl.SSLWantReadError:
                pass  # it is the other side's turn


def _check_readable(path: Path, command: str) -> None:
    try:
        read_bytes(path)  # so that OpenSSL, which would wait, reads no pipe
    except FileNotFoundError:
        raise InputError(
            f"{path} is missing; copy it here from the authority, which makes it with: {command}"
        ) from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def _explained(files: Files, error: ssl.SSLCertVerificationError, command: str) -> str:
    today = strftime("%Y-%m-%d %H:%M")
    if error.verify_code == _EXPIRED:
        return f"{files.certificate} has expired (the clock says {today}); renew it with: {command} --force"
    if error.verify_code == _NOT_YET_VALID:
        return f"{files.certificate} is not valid yet: the clock of this machine says {today}; set the clock"
    return f"{files.certificate} does not go with {files.ca}: {error.verify_message}; copy both anew"
