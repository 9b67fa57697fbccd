"""The gRPC health protocol, for whoever watches a server: systemd, Kubernetes, grpc_health_probe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc


class Health:
    """Says that services are up, and when they no longer are; nothing where the package is not installed."""

    def __init__(self, server: grpc.Server, services: Sequence[str]) -> None:
        self._services = ("", *services)
        self._servicer: Any = None
        try:
            from grpc_health.v1 import health, health_pb2, health_pb2_grpc
        except ImportError:
            return
        self._statuses = health_pb2.HealthCheckResponse
        self._servicer = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)
        for service in self._services:
            self._servicer.set(service, self._statuses.SERVING)

    def stopping(self) -> None:
        """Tell those who watch that the server goes down."""
        if self._servicer is not None:
            self._servicer.enter_graceful_shutdown()
