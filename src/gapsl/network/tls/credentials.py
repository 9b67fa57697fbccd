"""What grpc needs for mutual TLS, from files."""

from __future__ import annotations

from pathlib import Path

import grpc

from gapsl.network.tls.layout import files_of
from gapsl.network.tls.rehearsal import rehearse


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
