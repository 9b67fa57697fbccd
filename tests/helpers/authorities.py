"""An authority's secret key, for certificates that `gapsl certs` would not make."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization

from gapsl.network.tls.authority import Authority
from gapsl.network.tls.certificates import Pair, new_device

LONG_AGO = datetime.now(UTC) - timedelta(days=400)


def pair_of(folder: Path) -> Pair:
    """Return an authority's certificate and key."""
    key: Any = serialization.load_pem_private_key((folder / "ca-key.pem").read_bytes(), None)
    return Pair(Authority(folder).certificate, key)


def expired_device(ca: Pair, name: str) -> Pair:
    """Return a device's certificate that was valid once."""
    return new_device(ca, name, now=LONG_AGO)
