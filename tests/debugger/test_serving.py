"""The debugger's page: who may ask, what may be asked, and the page in a browser."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import hlokit as hk
from hlokit.errors import ArgumentError

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

MODULE = """HloModule m

body {
  state = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[4] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  half = f32[] constant(0.5)
  halves = f32[4] broadcast(half), dimensions={}
  y = f32[4] subtract(x, halves)
  logs = f32[4] log(y)
  sum = f32[4] add(logs, x)
  ROOT r = (s32[], f32[4]) tuple(next, sum)
}

condition {
  state = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(5)
  ROOT go = pred[] compare(i, n), direction=LT
}

ENTRY main {
  a = f32[4] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[4]) tuple(zero, a)
  loop = (s32[], f32[4]) while(start), condition=condition, body=body
  ROOT result = f32[4] get-tuple-element(loop), index=1
}
"""


@pytest.fixture
def served() -> Iterator[Any]:
    with hk.debug(hk.parse(MODULE), [1, 2, 3, 4]).serve() as page:
        yield page


def asked(url: str, method: str, path: str, body: bytes = b"", **headers: str | None) -> tuple[int, bytes, Any]:
    """Status, content and headers of a request; a header that is None is not sent."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=30)
    own: dict[str, str | None] = {"Host": parts.netloc}
    if method == "POST":
        own |= {"Origin": f"http://{parts.netloc}", "Content-Type": "application/json"}
    own |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in own.items():
        if value is not None:
            connection.putheader(name, value)
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    found = answer.status, answer.read(), answer.headers
    connection.close()
    return found


def did(url: str, **request: Any) -> tuple[int, Any]:
    status, content, _ = asked(url, "POST", urlsplit(url).path + "command", json.dumps(request).encode())
    return status, json.loads(content)


def test_only_with_the_token(served: Any) -> None:
    path = urlsplit(served.url).path
    assert len(path) > 40 and asked(served.url, "GET", path)[0] == 200
    for other in ("/", "/x/", path[:-2] + "/", path.upper(), "//", path + "../"):
        status, content, _ = asked(served.url, "GET", other)
        assert status in (403, 404) and b"HloModule" not in content and b"viewer" not in content, other
    body = b'{"do": "state"}'
    assert asked(served.url, "POST", "/x/command", body)[0] == 403
    assert asked(served.url, "POST", "/command", body)[0] in (403, 404, 405)
    with hk.debug(hk.parse(MODULE), [1, 2, 3, 4]).serve() as other:
        assert urlsplit(other.url).path != path


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1.evil.example", "localhost.evil:1", "", None])
def test_other_hosts_are_refused(served: Any, host: str | None) -> None:
    """An address of the attacker's that leads here (DNS rebinding) has another Host."""
    path = urlsplit(served.url).path
    body = b"" if host is None else b'{"do": "state"}'  # without a Host no body is read, and what is not read resets
    for method, place in (("GET", path), ("POST", path + "command")):
        status, content, _ = asked(served.url, method, place, body, Host=host)
        assert status in (400, 403) and b"place" not in content


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", "file://", "", None])
def test_other_origins_are_refused(served: Any, origin: str | None) -> None:
    path = urlsplit(served.url).path
    status, content, _ = asked(served.url, "POST", path + "command", b'{"do": "state"}', Origin=origin)
    assert status == 403 and b"place" not in content
    if origin is not None:
        assert asked(served.url, "GET", path, Origin=origin)[0] == 403


def test_it_listens_to_this_machine_alone(served: Any) -> None:
    assert urlsplit(served.url).hostname == "127.0.0.1"
    assert served._socket.getsockname()[0] == "127.0.0.1"


def test_a_named_proxy_may_ask() -> None:
    with hk.debug(hk.parse(MODULE), [1, 2, 3, 4]).serve(hosts=["jupyter.example"]) as page:
        path = urlsplit(page.url).path + "command"
        headers = {"Host": "jupyter.example", "Origin": "https://jupyter.example"}
        assert asked(page.url, "POST", path, b'{"do": "state"}', **headers)[0] == 200
        assert (
            asked(page.url, "POST", path, b'{"do": "state"}', Host="jupyter.example", Origin="https://other")[0] == 403
        )


def test_answers_are_kept_nowhere_and_framed_by_nobody(served: Any) -> None:
    _, content, headers = asked(served.url, "GET", urlsplit(served.url).path)
    assert headers["Cache-Control"] == "no-store" and headers["Referrer-Policy"] == "no-referrer"
    assert (
        "frame-ancestors 'self'" in headers["Content-Security-Policy"] and "access-control-allow-origin" not in headers
    )
    html = content.decode()
    assert "connect-src 'self'" in html and "default-src 'none'" in html
    assert urlsplit(served.url).path.strip("/") not in html  # addresses are relative


def test_the_run_goes_forwards_and_backwards(served: Any) -> None:
    status, state = did(served.url, do="step")
    assert status == 200 and state["next"] == "start" and state["time"] == 1
    assert did(served.url, do="break", at="nan")[1]["breakpoints"] == [[1, "nan", 0]]
    state = did(served.url, do="run")[1]
    assert state["ran"] == "logs" and "NaN in %logs" in state["stop"] and "iteration 1" in state["stack"]
    assert "nan 1" in did(served.url, do="value", name="logs")[1]["value"]
    assert did(served.url, do="back")[1]["next"] == "logs"
    assert [name for name, _ in did(served.url, do="state")[1]["operands"]] == ["y"]
    assert did(served.url, do="remove", number=1)[1]["breakpoints"] == []
    assert did(served.url, do="run")[1]["kind"] == "end"


@pytest.mark.parametrize(
    "request_",
    [
        {"do": "break", "at": "if __import__('os').system('true')"}, {"do": "break", "at": " if\tTrue"}, {"do": "eval"},
        {"do": "set", "name": "y", "value": "1"}, {"do": "save", "file": "/tmp/x"}, {"do": ["step"]}, {"do": "remove"},
        {"do": "value", "name": "nope"}, {"do": "device", "number": 7}, {"do": "device", "number": "x"}, {}, [], 1, "step",
    ],
)  # fmt: skip
def test_what_is_not_a_request_is_refused(served: Any, request_: Any, tmp_path: Path) -> None:
    path = urlsplit(served.url).path + "command"
    status, content, _ = asked(served.url, "POST", path, json.dumps(request_).encode())
    assert status == 400 and "error" in json.loads(content)
    assert did(served.url, do="state")[1]["breakpoints"] == []


def test_bodies_that_are_not_requests(served: Any) -> None:
    path = urlsplit(served.url).path + "command"
    assert asked(served.url, "POST", path, b"\xff{")[0] == 400
    assert asked(served.url, "POST", path, b"[" * 9000)[0] == 400
    assert asked(served.url, "POST", path, b"x" * 20_000)[0] == 413
    assert asked(served.url, "POST", path, b'{"do": "step"}', Content_Type="text/plain")[0] == 415
    assert did(served.url, do="state")[1]["time"] == 0


def test_a_port_that_is_taken(served: Any) -> None:
    port = urlsplit(served.url).port
    assert port is not None
    with pytest.raises(ArgumentError, match=f"port {port}"):
        hk.debug(hk.parse(MODULE), [1, 2, 3, 4]).serve(port)


def test_the_command_serves(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(MODULE, encoding="utf-8")
    words = [sys.executable, "-m", "hlokit", "debug", "m.hlo", "--random", "0", "--serve", "--command", "break logs"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("breakpoint 1: logs")
        url = process.stdout.readline().strip()
        assert did(url, do="run")[1]["next"] == "logs"
        process.send_signal(2)
        assert process.wait(30) in (0, 130)
    finally:
        process.kill()


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    browser, service = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if browser is None or service is None:
        pytest.skip("Chromium and its driver are not here")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,900"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(service))
    yield made
    made.quit()


def test_the_page_in_a_browser(driver: Any, served: Any) -> None:
    wait: Any = pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait(driver, 30)
    driver.get(served.url)

    def text(place: str) -> str:
        return driver.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", place)

    def until(place: str, words: str) -> None:
        wait.until(lambda _: words in text(place), f"{words!r} in {place}: {text(place)!r}")

    def press(what: str) -> None:
        driver.find_element("id", "do-" + what).click()

    until("#time", "event 0")
    press("step")
    until("#time", "event 1")
    until("#details h2", "start")
    press("back")
    until("#time", "event 0")
    driver.find_element("id", "condition").send_keys("nan\ue007")
    until("#panel", "nan")
    press("run")
    until("#details h2", "logs")
    until("#said", "1 NaN in %logs")
    until("#details", "min 0.6447")  # the value's statistics
    until("#stack", "iteration 1")
    driver.find_element("css selector", "body").send_keys("b")
    until("#panel .operand", "-0.19314")
    driver.find_element("css selector", "#panel table button").click()
    until("#panel", "no breakpoints")
    press("run")
    until("#said", "at the end")
    until("#details", "nan 1, min 6.79")
    assert [entry["message"] for entry in driver.get_log("browser") if "favicon" not in entry["message"]] == []
