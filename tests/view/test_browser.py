"""The viewer's page in a browser without a window. Skipped, with the reason, where there is no browser."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import hlokit as hk
from hlokit.hlo.module import HloModule
from hlokit.view.page import View
from tests.golden.programs import BUNDLED, read_program
from tests.view.test_page import HOSTILE, data_of

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (pip install selenium)")
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    service = shutil.which("chromedriver")
    if browser is None or service is None:
        pytest.skip("no Chromium with its driver (apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for word in ("--headless=new", "--disable-gpu", "--window-size=1500,950", "--disable-dev-shm-usage"):
        options.add_argument(word)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium refuses its sandbox to root; the pages are our own
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(service))
    yield made
    made.quit()


@pytest.fixture
def shows(driver: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens a page at an address within it; at the end the browser must have nothing to complain of."""

    def opened(view: View, address: str = "") -> Any:
        driver.get("about:blank")
        driver.get(view.save(tmp_path / "page.html").as_uri() + address)
        wait = import_module("selenium.webdriver.support.ui").WebDriverWait(driver, 60)
        wait.until(lambda page: page.execute_script("return document.documentElement.dataset.ready") == "yes")
        return driver

    driver.get_log("browser")
    yield opened
    assert [entry["message"] for entry in driver.get_log("browser")] == []


def text(driver: Any, place: str) -> str:
    return driver.find_element("css selector", place).text


def press(driver: Any, words: str) -> None:
    driver.find_element("css selector", "body").send_keys(words)


@pytest.fixture(scope="module")
def compiled() -> View:
    program = read_program(BUNDLED, "gru_scan_grad")
    executable = hk.compile(hk.parse(program.hlo))
    return executable.view(executable.profile(*program.inputs, repeat=1))


def test_search_finds_by_opcode_and_selects(shows: Open) -> None:
    module = hk.parse(read_program(BUNDLED, "transformer_block_forward").hlo)
    driver = shows(module.view(), "#stage=0")
    press(driver, "/")
    driver.switch_to.active_element.send_keys("dot f32[2,10,24]")
    wanted = [i for i in module.instructions() if "dot" in i.opcode + i.name and str(i.shape).startswith("f32[2,10,24]")]
    assert text(driver, "#said").startswith(f"{len(wanted)} of ")
    driver.switch_to.active_element.send_keys("\ue007")
    assert text(driver, "#details h2") == wanted[0].name


def test_the_slider_follows_an_instruction_both_ways(shows: Open) -> None:
    module = hk.parse("HloModule m\nENTRY e { x = f32[4] parameter(0) a = f32[4] negate(x) b = f32[4] negate(a) "
                      "c = f32[4] exponential(b) ROOT d = f32[4] negate(c) }")  # fmt: skip
    driver = shows(module.view(), "#stage=0&at=b")
    press(driver, "]")
    assert text(driver, "#stagename").endswith("algsimp")
    assert text(driver, "#details h2") == "x" and "b is x here" in text(driver, "#said")
    press(driver, "[")
    assert text(driver, "#details h2") == "x"
    gone = [row.text for row in driver.find_elements("css selector", "#panel tr.a")]
    assert gone == []
    driver.find_element("id", "stage").send_keys("\ue014")
    rows = driver.find_elements("css selector", "#panel tr.changed")
    assert any("%a" in row.text or "%x" in row.text for row in rows)


def test_an_address_is_a_link_to_an_instruction(shows: Open, compiled: View) -> None:
    driver = shows(compiled, "#stage=1&radius=1&tab=memory")
    name = driver.execute_script("return document.querySelector('#details .links button').dataset.name")
    driver.find_element("css selector", "#details .links button").click()
    assert text(driver, "#details h2") == name
    address = driver.current_url.partition("#")[2]
    again = shows(compiled, "#" + address)
    assert text(again, "#details h2") == name and text(again, "#tabs [aria-selected=true]") == "Memory"


def test_from_an_instruction_to_its_kernel_loops_llvm_and_assembly_and_back(shows: Open, compiled: View) -> None:
    data = data_of(compiled)
    kernel = next(s for s in data["code"]["steps"] if s["kind"] == "kernel" and s["functions"])
    name = data["strings"][data["stages"][-1]["name"][kernel["results"][0]]]
    driver = shows(compiled, f"#at={name}")
    driver.execute_script("document.querySelector('#details [data-step]').click()")
    assert text(driver, "#tabs [aria-selected=true]") == "Loops"
    step = driver.execute_script("return document.querySelector('.code.at').textContent").split()
    assert step[0] in ("kernel", "routine", "copy", "while", "reference")
    for tab, word in (("llvm", "define"), ("asm", ":")):
        driver.find_element("id", "tab-" + tab).click()
        marked = driver.execute_script("return [...document.querySelectorAll('.code.at')].map(e => e.textContent)")
        assert any(word in line for line in marked), tab
    driver.find_element("id", "tab-loops").click()
    driver.execute_script("[...document.querySelectorAll('.code.link')].find(e => e.textContent.includes(' = ')).click()")
    assert text(driver, "#details h2") and driver.find_elements("css selector", ".code.at")


def test_profile_memory_and_heat(shows: Open, compiled: View) -> None:
    driver = shows(compiled)
    driver.find_element("id", "tab-profile").click()
    assert "roofline" in text(driver, "#panel") and "%" in text(driver, "#panel tbody")
    driver.find_element("id", "tab-memory").click()
    assert "at the peak" in text(driver, "#panel") and driver.find_elements("css selector", "#blocks rect.hold")
    driver.find_element("css selector", "#colour option[value=heat]").click()
    assert "share of the time" in text(driver, "#legend")


def test_two_programs_side_by_side(shows: Open) -> None:
    text_of_a = "HloModule m\nENTRY e { x = f32[4] parameter(0) a = f32[4] negate(x) ROOT d = f32[4] exponential(a) }"
    a, b = hk.parse(text_of_a), hk.parse(text_of_a.replace("negate", "sine").replace("d =", "z ="))
    driver = shows(hk.diff(a, b).view())
    assert text(driver, "#tabs [aria-selected=true]") == "Differences"
    assert text(driver, "#details h2") == "z" and "Is in the first" in text(driver, "#details")
    [row] = driver.find_elements("css selector", "#panel tr.changed")
    assert "opcode: negate → sine" in row.text
    row.find_elements("css selector", "button")[0].click()
    assert text(driver, "#details h2") == "a" and text(driver, "#stagename").endswith("first: m")
    driver.execute_script("document.querySelector('#panel tr.changed td:last-child button').click()")
    assert "changed" in text(driver, "#details dl") and text(driver, "#stagename").endswith("second: m")
    assert driver.find_elements("css selector", "#graph .changed.at")


def test_shardings_and_collectives_with_their_reasons(shows: Open) -> None:
    module = hk.parse(
        "HloModule m\nENTRY e { x = f32[8,16] parameter(0), sharding={devices=[1,2]<=[2]} w = f32[16,32] parameter(1), sharding={devices=[2,1]<=[2]} "
        "d = f32[8,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} ROOT r = f32[8,32] negate(d) }"
    )
    parts = hk.partition(module, out_shardings=["{replicated}"])
    [reason] = parts.reasons
    driver = shows(parts.view(), f"#stage=1&at={reason.collective}&tab=collectives")
    assert reason.because in text(driver, "#panel") and f"{reason.nbytes / 1e3:.1f} kB" in text(driver, "#panel")
    assert "1 collectives" in text(driver, "#panel") and text(driver, "#details h2") == reason.collective
    driver.execute_script("document.querySelector('#panel td:nth-child(5) button').click()")
    assert text(driver, "#details h2") == reason.op == "d" and "whole values" in text(driver, "#stagename")
    assert "a colour for each sharding" in text(driver, "#legend")
    fill = "return document.querySelector('#graph [data-name=x] rect').style.fill"
    assert "light-dark(" in driver.execute_script(fill) and "devices" in text(driver, "#graph [data-name=x]")


def test_it_prints(shows: Open, compiled: View) -> None:
    driver = shows(compiled, "#tab=profile")
    pdf = base64.b64decode(driver.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert pdf.startswith(b"%PDF") and len(pdf) > 10_000
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    shown = {place: driver.find_element("css selector", place).is_displayed() for place in ("#details", "#panel", "#graph", "#outline", "#tabs")}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert shown == {"#details": True, "#panel": True, "#graph": True, "#outline": False, "#tabs": False}


def test_a_hostile_program_stays_text(shows: Open) -> None:
    driver = shows(hk.load(HOSTILE).view(), "#stage=0&at=y")
    assert driver.title == "hostile"
    assert "\\u202e" in text(driver, "#details") and "\u202e" not in driver.execute_script("return document.body.innerText")
    assert "<b>" in text(driver, "#details") and not driver.find_elements("css selector", "img, b:not(.rule b)")
    driver.execute_script("for (const b of document.querySelectorAll('#tabs button')) b.click()")
    assert driver.title == "hostile"


def test_an_outline_for_keyboards_and_screen_readers(shows: Open) -> None:
    module = hk.parse(read_program(BUNDLED, "gru_scan_grad").hlo)
    driver = shows(module.view(), "#stage=0")
    tree = driver.find_element("id", "tree")
    tree.send_keys("\ue011")  # Home
    active = driver.find_element("id", tree.get_attribute("aria-activedescendant"))
    assert (active.get_attribute("role"), active.get_attribute("aria-level")) == ("treeitem", "1")
    before = active.get_attribute("aria-expanded")
    tree.send_keys("\ue007")
    again = driver.find_element("id", tree.get_attribute("aria-activedescendant"))
    assert {before, again.get_attribute("aria-expanded")} == {"true", "false"}
    for place in ("tree", "graph", "tabs"):
        assert driver.find_element("id", place).get_attribute("role")
    driver.find_element("id", "theme").click()
    assert driver.execute_script("return document.documentElement.dataset.theme") in ("dark", "light")


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, 10_000, 100_000])
def test_large_programs_open(shows: Open, count: int) -> None:
    """Only what is in sight becomes elements; the page but for its data is small."""
    view = long_chain(count).view(passes=False)
    driver = shows(view)
    assert driver.execute_script("return document.querySelectorAll('*').length") < 2000
    print(count, len(view.html), driver.execute_script("return performance.now()"))
    driver.find_element("id", "search").send_keys("exponential")
    assert f"of {len(long_chain(count).entry):,} instructions" in text(driver, "#said")


def long_chain(count: int) -> HloModule:
    """A program of about so many instructions, in layers of two."""
    b = hk.Builder("chain")
    x = b.parameter(0, hk.f32[8], "x")
    for n in range(count // 2):
        x = hk.add(hk.exp(x), x) if n % 2 else hk.mul(hk.tanh(x), x)
    return b.build(x)
