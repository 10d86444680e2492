"""Makes the pictures of docs/view.md and docs/howto/debug.md: python -m tests.view.screenshots.

Needs Chromium with its driver, selenium, and hlokit[view].
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import hlokit as hk
from hlokit.debugger.commands import Session
from hlokit.debugger.terminal import Screen
from tests.debugger.test_commands import LOOP
from tests.golden.programs import BUNDLED, read_program

STATIC = Path(__file__).parents[2] / "docs/static"
PICTURES = {
    "view": ("transformer_block_forward", "#tab=loops&radius=2", "details [data-step]"),
    "view_memory": ("gru_scan_grad", "#tab=memory", ""),
}


def main() -> int:
    webdriver: Any = import_module("selenium.webdriver")
    options: Any = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1360,860"):
        options.add_argument(word)
    driver: Any = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver") or ""))
    with tempfile.TemporaryDirectory() as folder:
        for picture, (name, address, press) in PICTURES.items():
            program = read_program(BUNDLED, name)
            executable = hk.compile(hk.parse(program.hlo))
            page = executable.view(executable.profile(*program.inputs, repeat=3)).save(Path(folder) / "page.html")
            driver.get("about:blank")
            driver.get(page.as_uri() + address)
            if press:
                driver.execute_script(f"document.querySelector('#{press}')?.click()")
            driver.save_screenshot(str(STATIC / f"{picture}.png"))
    with hk.debug(hk.parse(LOOP), [1, 2, 3, 4]).serve() as served:
        driver.get(served.url)
        wait: Any = import_module("selenium.webdriver.support.ui").WebDriverWait(driver, 30)
        wait.until(lambda _: driver.find_elements("id", "time"))
        driver.find_element("id", "condition").send_keys("nan\ue007")
        driver.find_element("id", "do-run").click()
        wait.until(lambda _: "1 NaN" in driver.find_element("id", "said").text)
        driver.save_screenshot(str(STATIC / "debug_page.png"))
    with tempfile.TemporaryDirectory() as folder:
        (drawn := Path(folder) / "terminal.svg").write_text(asyncio.run(_terminal()), encoding="utf-8")
        driver.set_window_size(1240, 870)
        driver.get(drawn.as_uri())
        driver.save_screenshot(str(STATIC / "debug_terminal.png"))
    driver.quit()
    return 0


async def _terminal() -> str:
    """The debugger's screen after a run to the first NaN, as SVG."""
    screen = Screen(Session(hk.debug(hk.parse(LOOP), [1, 2, 3, 4])), ["break nan"])
    async with screen.run_test(size=(120, 32)) as pilot:
        await pilot.press("f5")
        await pilot.pause()
        return screen.export_screenshot()


if __name__ == "__main__":
    sys.exit(main())
