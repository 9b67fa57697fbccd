"""When a connection is TLS: always, but on this machine, or where plain text was asked for by name."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from gapsl.common.errors import InputError
from gapsl.network.tls.names import FOLDER

SCHEMES = ("unix", "unix-abstract", "ipv4", "ipv6", "dns")
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
            f"{address} is reached over TLS, and there are no certificates in {folder}. Make them once with: "
            "gapsl certs init; gapsl certs server --host HOST; gapsl certs device NAME --pack - and give "
            "their folder with --certs. Only where you trust everybody on the network: --insecure"
        )
    return folder


def check_address(address: str) -> None:
    """Refuse what is no HOST:PORT; what grpc has beside it (unix:PATH, dns:...) is left to it."""
    if address.partition(":")[0] in SCHEMES:
        return
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > LARGEST_PORT:
        raise InputError(f"{address!r} is no address; give HOST:PORT, for example train.example.org:7443")


def is_loopback(address: str) -> bool:
    """Say whether an address of grpc's (HOST:PORT, [IPv6]:PORT, unix:PATH) cannot leave this machine.

    In doubt it can: the answer decides whether plain text is good enough.
    """
    scheme, _, rest = address.partition(":")
    if scheme in ("unix", "unix-abstract"):
        return True
    if scheme in ("ipv4", "ipv6"):
        return all(_is_loopback_host(_host(one)) for one in rest.split(","))
    if scheme == "dns":  # dns:HOST:PORT or dns://RESOLVER/HOST:PORT
        return _is_loopback_host(_host(rest.rpartition("/")[2]))
    return _is_loopback_host(_host(address))


def _host(address: str) -> str:
    if address.startswith("["):
        return address[1:].partition("]")[0]
    host, colon, port = address.rpartition(":")
    return host if colon and ":" not in host and port.isdecimal() else address


def _is_loopback_host(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback
