"""Makes the pictures of docs/view.md: python -m tests.view.screenshots. Needs Chromium with its driver, and selenium."""

from __future__ import annotations

import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import hlokit as hk
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
    driver.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
