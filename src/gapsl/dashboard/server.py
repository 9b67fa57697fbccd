"""The page over HTTP: files, answers, and news as server-sent events. Nothing can be changed through it."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import math
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request, cookie_parser
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gapsl.common.errors import InputError
from gapsl.dashboard import answers
from gapsl.dashboard.comparison import comparison
from gapsl.dashboard.downsample import Answer
from gapsl.dashboard.fleet import fleet
from gapsl.dashboard.record_index import AXES
from gapsl.dashboard.watch import Watch

STATIC = Path(__file__).parent / "static"
LOOK_SECONDS = 0.2  # between two looks whether there is news
ALIVE_SECONDS = 10.0  # between two signs of life where there is none
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def make_app(watch: Watch, *, host: str, token: str | None, over: Callable[[], bool]) -> ASGIApp:
    """Return the application; the guard checks host names and the token.

    When it is `over`, streams end, so that nothing keeps the server from its end.
    """

    def overview(request: Request) -> Response:
        return as_json(answers.overview(watch))

    def compare(request: Request) -> Response:
        return as_json(comparison(watch))

    def of_run(request: Request) -> Response:
        runs = {str(run.number): run for run in watch.runs}
        number, what = request.path_params["number"], request.path_params["what"]
        if number not in runs or what not in OF_RUN:
            raise HTTPException(404)
        try:
            return as_json(OF_RUN[what](runs[number], **numbers_in(request, what)))
        except (OSError, InputError) as error:  # its folder is gone, or a file of it damaged meanwhile
            return PlainTextResponse(f"the run's files cannot be read: {error}", 503)

    async def events(request: Request) -> Response:
        return StreamingResponse(news(watch, over), media_type="text/event-stream")

    def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    app = Starlette(
        routes=[
            Route("/", page),
            Route("/api/overview", overview),
            Route("/api/compare", compare),
            Route("/api/runs/{number}/{what}", of_run),
            Route("/events", events),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
    )

    def asked() -> None:
        watch.asked = time.monotonic()

    return Guard(app, host, token, asked)


OF_RUN: dict[str, Callable[..., Answer]] = {
    "curves": answers.curves,
    "devices": answers.devices,
    "angles": answers.angles,
    "fleet": fleet,
    "about": answers.about,
}


def numbers_in(request: Request, what: str) -> dict[str, Any]:
    """Return what a question asks for beyond its address; refuse what is no number."""
    given = request.query_params
    try:
        if what == "angles":
            return {"round": int(np.int64(given["round"]))} if "round" in given else {}
        if what == "curves":
            low, high = float(given.get("low", -math.inf)), float(given.get("high", math.inf))
            axis = given.get("axis", "round")
            if axis in AXES and low <= high:
                return {"axis": axis, "low": low, "high": high}
            raise HTTPException(400)
    except (ValueError, OverflowError):
        raise HTTPException(400) from None
    return {}


def as_json(answer: Answer) -> Response:
    """Return an answer as a response."""
    return Response(
        answers.as_text(answer), media_type="application/json", headers={"Cache-Control": "no-store"}
    )


async def news(watch: Watch, over: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield an event whenever the runs have changed: which of them, by their versions."""
    told, quiet = -1, 0.0
    yield "retry: 1000\n\n"
    while not over():
        if watch.version != told:
            told, quiet = watch.version, 0.0
            yield f"data: {json.dumps([run.version for run in watch.runs])}\n\n"
        elif quiet >= ALIVE_SECONDS:
            quiet = 0.0
            yield ": alive\n\n"
        await asyncio.sleep(LOOK_SECONDS)
        quiet += LOOK_SECONDS


class Guard:
    """Lets in who only reads, calls this machine by a name of its own, and knows the token if there is one.

    A page of somebody else whose name suddenly leads here (DNS rebinding) still calls by that name.
    """

    def __init__(self, app: ASGIApp, host: str, token: str | None, asked: Callable[[], None]) -> None:
        self._app, self._token, self._asked = app, token, asked
        self._names = {"localhost", host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return
        response = self._refusal(scope)
        self._asked()

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await (response or self._app)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("this page is read-only", 405, headers={"Allow": "GET, HEAD"})
        if not self._is_own(headers.get("host", "")):
            return PlainTextResponse(
                "this page is not served under that name; use the address it was given", 421
            )
        if self._token is None:
            return None
        cookie = f"gapsl-{(scope.get('server') or ('', 0))[1]}"  # cookies do not tell ports apart
        if same(cookie_parser(headers.get("cookie", "")).get(cookie, ""), self._token):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if same(given, self._token):
            welcome = RedirectResponse("/" + scope["path"].lstrip("/"), 303)  # two would name a host
            welcome.set_cookie(cookie, self._token, httponly=True, samesite="strict")
            return welcome
        return PlainTextResponse(
            "this page needs its token: open the address that gapsl dashboard has printed", 401
        )

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name)
            return True
        except ValueError:
            return name in self._names


def same(given: str, token: str) -> bool:
    """Compare in a time that tells nothing."""
    return secrets.compare_digest(given.encode(), token.encode())
