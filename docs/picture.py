"""Writes docs/picture.svg, the README's picture: what its first example prints, and one error.

    python -m docs.picture
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

import hlokit as hk

ROOT = Path(__file__).parents[1]
WIDTH = 104
_KEYWORDS = r"(?<![%\w.])(ENTRY|ROOT|kernel|with|for|in|reads|writes|[a-z]+(?=\())(?![\w.])"


def lines() -> list[Text]:
    """The picture's lines: what was typed, and what hlokit gave, without the places of the source."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)[0]
    names: dict[str, Any] = {"print": lambda *_: None}
    exec(block, names)
    text = re.sub(r", metadata=\{[^}]*\}", "", str(names["module"]))
    entry = [line for line in text.partition("ENTRY")[2].splitlines() if line]
    loops = hk.compile(names["module"], target="x86-64-avx2").as_text("loops").strip().splitlines()
    shown = [*_typed("print(module)"), Text("..."), *_shown(["ENTRY" + entry[0], *entry[1:]]), Text()]
    shown += [*_typed('print(hk.compile(module).as_text("loops"))'), *_shown(loops[5:]), Text()]
    return [*shown, *_typed("hk.sub(x, largest)"), *_refused()]


def _typed(code: str) -> list[Text]:
    return [Text.assemble((">>> ", "bold green"), (code, "bold"))]


def _shown(printed: list[str]) -> list[Text]:
    found: list[Text] = []
    for line in printed:
        text = Text(re.sub(r"@k\w+", "@k", line))
        text.highlight_regex(_KEYWORDS, "cyan")
        text.highlight_regex(r"\b[a-z]+\d+\[[\d,]*\](\{[\d,]*\})?", "yellow")
        found.append(text)
    return found


def _refused() -> list[Text]:
    b = hk.Builder("softmax", source_info=False)
    try:
        hk.sub(b.parameter(0, hk.f32[2, 4]), b.parameter(1, hk.f32[2]))
    except hk.ShapeError as error:
        message = re.sub(r" at \S+$", "", str(error))
        text = Text.assemble(("ShapeError: ", "bold red"), message)
        text.highlight_regex(r"write hk\.sub\(x, y, \[0\]\)", "bold green")
        return [text, *(Text(note) for note in error.__notes__)]
    raise AssertionError("a subtraction that must be refused was not")


def svg() -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines():
        console.print(line, soft_wrap=False)
    return console.export_svg(title="softmax", unique_id="hlokit") + "\n"


if __name__ == "__main__":
    (ROOT / "docs/picture.svg").write_text(svg(), encoding="utf-8")
