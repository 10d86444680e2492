"""The debugger as a page: the viewer with values, served only to this machine.

The page may move the run and ask for values, by the requests of `_Requests`, which take names, numbers and conditions.
Python expressions are not among them. A request needs the token of the address, and a Host and an Origin that are
known.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from html import escape
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from hlokit.debugger.conditions import named
from hlokit.debugger.debugger import Debugger, Stop
from hlokit.debugger.describe import place_text, stack_text, value_text
from hlokit.errors import ArgumentError, HlokitError
from hlokit.hlo.instruction import Instruction
from hlokit.view.data import PageData
from hlokit.view.page import page

_LARGEST = 10_000
"""Bytes of a request."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'self'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Served:
    """A debugger's page that is being served, as `Debugger.serve` gives it.

    Attributes
    ----------
    url : str
        The address, with its token: whoever has it can use the page.
    """

    def __init__(self, debugger: Debugger, port: int, hosts: Sequence[str]) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.bind(("127.0.0.1", port))
            self._socket.listen()  # requests wait until the server takes them
        except (OSError, OverflowError) as error:
            self._socket.close()
            raise ArgumentError(f"serve: port {port}: {error}") from None
        number: int = self._socket.getsockname()[1]
        token = secrets.token_urlsafe(32)
        self.url = f"http://127.0.0.1:{number}/{token}/"
        names = {f"127.0.0.1:{number}", f"localhost:{number}", *hosts}
        config = uvicorn.Config(
            _application(debugger, token, names), log_level="warning", access_log=False, server_header=False, ws="none",
            lifespan="off", timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="hlokit debug --serve", daemon=True
        )
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Served {self.url}>"

    def _repr_html_(self) -> str:
        return f'<a href="{escape(self.url)}" target="_blank">{escape(self.url)}</a>'

    def wait(self) -> None:
        """Waits until the page is closed by `close`, or by Ctrl-C."""
        while self._thread.is_alive():
            self._thread.join(0.2)

    def close(self) -> None:
        """Ends the serving."""
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _application(debugger: Debugger, token: str, hosts: set[str]) -> Starlette:
    requests = _Requests(debugger)
    html = _page_of(debugger)

    async def show(request: Request) -> Response:
        return HTMLResponse(html, headers=_HEADERS)

    async def command(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _refused(415, "expected application/json")
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _LARGEST:
                return _refused(413, "the request is too long")
        try:
            answer = await run_in_threadpool(requests.answer, json.loads(body))
        except (HlokitError, ValueError, TypeError, KeyError, RecursionError) as error:
            said = str(error) if isinstance(error, HlokitError) else f"is not a request: {type(error).__name__}"
            return JSONResponse({"error": said}, status_code=400, headers=_HEADERS)
        return JSONResponse(answer, headers=_HEADERS)

    def checked(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def check(request: Request) -> Response:
            host, origin = request.headers.get("host", ""), request.headers.get("origin")
            if host not in hosts:
                return _refused(403, "this host is not served")
            if origin is None and request.method == "POST":
                return _refused(403, "expected an Origin")
            if origin is not None and origin not in {f"{s}://{name}" for s in ("http", "https") for name in hosts}:
                return _refused(403, "this origin is not served")
            if not secrets.compare_digest(request.path_params["token"].encode(), token.encode()):
                return _refused(403, "the address has not the right token")
            return await answer(request)

        return check

    application = Starlette(
        routes=[
            Route("/{token}/", checked(show), methods=["GET"]),
            Route("/{token}/command", checked(command), methods=["POST"]),
        ]
    )
    application.router.redirect_slashes = False
    return application


def _refused(status: int, text: str) -> Response:
    return PlainTextResponse(f"{text}\n", status_code=status, headers=_HEADERS)


def _page_of(debugger: Debugger) -> str:
    data = PageData(debugger.module.name)
    data.stage("input", debugger.module)
    return page({**data.json(), "live": True}, connects=True).html


class _Requests:
    """The requests that the page can make, answered one at a time."""

    def __init__(self, debugger: Debugger) -> None:
        self._debugger = debugger
        self._lock = threading.Lock()
        self._stop: Stop | None = None
        self._moves: dict[str, Callable[[], Stop]] = {
            "step": debugger.step, "into": debugger.into, "out": debugger.out, "run": debugger.run,
            "back": debugger.back, "back-into": debugger.back_into, "back-out": debugger.back_out,
            "run-back": debugger.run_back,
        }  # fmt: skip

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The state after a request, or the value that it asks for. ArgumentError for what is not a request."""
        with self._lock:
            what = request["do"]
            if what == "value":
                return {"value": self._shown(named(self._debugger.module, str(request["name"])))}
            if what in self._moves:
                self._stop = self._moves[what]()
            elif what == "break":
                self._debugger.break_at(self._condition(str(request["at"])))
            elif what == "remove":
                self._debugger.remove(int(request["number"]))
            elif what == "device":
                self._debugger.select(int(request["number"]))
            elif what != "state":
                raise ArgumentError(f"{str(what)[:40]!r} is not a request")
            return self._state()

    @staticmethod
    def _condition(text: str) -> str:
        if text.split()[:1] == ["if"]:
            raise ArgumentError("Python expressions are for the terminal and the API")
        return text

    def _shown(self, instruction: Instruction) -> str:
        """The value of an instruction, or why it has none here."""
        try:
            return self._value(instruction.name)
        except ArgumentError as error:
            return str(error)

    def _value(self, name: str) -> str:
        if self._debugger.is_finished and name == self._debugger.module.entry.root.name:
            return value_text(f"%{name}", self._debugger.result)
        return value_text(f"%{name}", self._debugger.value(name))

    def _state(self) -> dict[str, Any]:
        debugger = self._debugger
        following = debugger.next
        return {
            "time": debugger.time,
            "place": place_text(debugger),
            "stop": self._stop.text if self._stop is not None else "",
            "kind": self._stop.kind if self._stop is not None else "start",
            "next": following.name if following is not None else "",
            "ran": self._ran(),
            "stack": stack_text(debugger),
            "operands": [
                [o.name, self._shown(o)] for o in dict.fromkeys(following.operands if following is not None else ())
            ],
            "device": debugger.device,
            "devices": debugger.devices,
            "waiting": debugger.waiting,
            "breakpoints": [[b.number, b.condition.text, b.hits] for b in debugger.breakpoints],
        }

    def _ran(self) -> str:
        """The instruction that a run stopped behind."""
        event = self._stop.evaluated if self._stop is not None else None
        return event.instruction.name if event is not None else ""
