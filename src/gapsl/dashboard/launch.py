"""How the page is started: alone, or beside a command that trains, in a process of its own."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from gapsl.common.errors import InputError, Unavailable

PORT = 8787
NEEDED = ("starlette", "uvicorn")
CONNECTIONS = 200  # at a time
PATIENCE = 10.0  # seconds for a visitor's first request
METRICS = "localhost:0"  # where a server tells the page who is connected


def check_extra() -> None:
    """Refuse, with the fix, where what the page is served with is not installed."""
    if any(find_spec(name) is None for name in NEEDED):
        raise InputError("the live page needs Starlette and uvicorn: pip install 'gapsl[dashboard]'")


def can_measure() -> bool:
    """Say whether a server here can tell who is connected."""
    return find_spec("prometheus_client") is not None


def listen(host: str = "localhost", port: int | None = None) -> socket.socket:
    """Return a socket that listens; without a port at the usual one, or where that is taken at any."""
    try:
        found = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)
        family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    except (socket.gaierror, UnicodeError, OverflowError) as error:
        raise InputError(f"--host {host}: {error}; give a name or an address of this machine") from None
    for candidate in (PORT, 0) if port is None else (port,):
        opened = socket.socket(family, socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind((address[0], candidate))
            opened.listen(128)
            return opened
        except (OSError, OverflowError) as error:
            opened.close()
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            if taken and port is None:
                continue
            if taken:
                raise Unavailable(
                    f"port {port} is in use; choose another with --port, 0 for any that is free"
                ) from None
            raise InputError(
                f"cannot listen on {host}:{candidate}: {error}; choose another --host or --port"
            ) from None
    raise Unavailable("no port is free")


def is_local(opened: socket.socket) -> bool:
    """Say whether only this machine can reach a socket."""
    return ipaddress.ip_address(opened.getsockname()[0]).is_loopback


def guard(opened: socket.socket, token: str | None) -> str | None:
    """Return the token that the page asks for: what was given, and beyond this machine always one."""
    if token is not None and (not token.isascii() or not token.isprintable() or not token.strip()):
        raise InputError("--token must have letters, and plain ones only; leave it out, and one is made")
    return token if token or is_local(opened) else secrets.token_urlsafe(16)


def address_of(opened: socket.socket, host: str, token: str | None) -> str:
    """Return where the page is, as a browser takes it."""
    bound, port = opened.getsockname()[:2]
    name = socket.gethostname() if ipaddress.ip_address(bound).is_unspecified else host
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")


def serve_page(
    folders: list[Path],
    opened: socket.socket,
    *,
    host: str = "localhost",
    token: str | None = None,
    data_dir: str | None = None,
    expected: bool = False,
    begun: Callable[[], None] = lambda: None,
    until: Callable[[], object] | None = None,
) -> None:
    """Serve the page until a signal, or until `until` returns; `begun` is called once the runs are found."""
    check_extra()
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    from gapsl.dashboard.server import make_app
    from gapsl.dashboard.watch import Watch

    class Visitor(H11Protocol):
        """Sent away if it asks nothing, so that it does not hold one of the connections forever."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.loop.call_later(PATIENCE, self.give_up)

        def give_up(self) -> None:
            if self.cycle is None:
                self.transport.close()

    watch = Watch(folders, data_dir=data_dir, expected=expected)
    settings = uvicorn.Config(
        make_app(watch, host=host, token=token, over=lambda: server.should_exit),
        http=Visitor,
        log_level="critical",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=1,
        limit_concurrency=CONNECTIONS,
    )
    server = uvicorn.Server(settings)

    def leave() -> None:
        assert until is not None
        until()
        server.should_exit = True

    if until is not None:
        threading.Thread(target=leave, daemon=True).start()
    watch.start()
    begun()
    try:
        server.run(sockets=[opened])
    finally:
        watch.stop()


@contextmanager
def live_page(folder: Path, wanted: bool, tell: Callable[[str], None]) -> Iterator[None]:
    """Serve the page of a folder beside the block, if that is wanted, in a process that reads files alone.

    The process ends with this one, however this one ends; if it dies itself, nobody else notices.
    """
    if not wanted:
        yield
        return
    check_extra()
    with listen() as opened:
        page = subprocess.Popen(
            [sys.executable, "-m", "gapsl", "dashboard", str(folder), "--beside", str(opened.fileno())],
            stdin=subprocess.PIPE,  # closed when this process ends: then it leaves
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[opened.fileno()],
            start_new_session=True,  # Ctrl-C asks for the end of training, not of the page
        )
        tell(f"live page: {address_of(opened, 'localhost', None)}")
    try:
        yield
    finally:
        with suppress(OSError):
            page.send_signal(signal.SIGTERM)
            try:
                page.wait(5)
            except subprocess.TimeoutExpired:  # it hangs: what was trained is done nevertheless
                page.kill()
                page.wait()
