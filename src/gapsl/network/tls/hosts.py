"""The hosts that a server's certificate is for."""

from __future__ import annotations

import ipaddress
import re
import socket

from cryptography import x509

from gapsl.common.errors import InputError

_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


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


def _is_dns_name(host: str) -> bool:
    labels = host.removesuffix(".").split(".")
    # A last label of digits makes it a mistyped IPv4 address.
    return len(host) <= 253 and all(map(_LABEL.fullmatch, labels)) and not labels[-1].isdecimal()
