"""The diagrams of the documentation show what the reference gives."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import hlokit as hk
from docs import diagram

FILES = sorted(diagram.FOLDER.glob("*.hlo"))
MOVED = {
    "all-gather", "all-reduce", "all-to-all", "broadcast", "collective-broadcast", "collective-permute", "concatenate",
    "convolution", "dot", "dynamic-slice", "dynamic-update-slice", "gather", "iota", "pad", "reduce", "reduce-scatter",
    "reduce-window", "reshape", "reverse", "scatter", "select", "select-and-scatter", "slice", "sort", "transpose",
}  # fmt: skip
"""Ops that have a diagram."""


def cells(path: Path, array: str) -> list[ET.Element]:
    root = ET.fromstring(diagram.svg(diagram.diagram(path.read_text(encoding="utf-8"))))
    return [cell for cell in root.iter("{http://www.w3.org/2000/svg}rect") if cell.get("data-array") == array]


def places(text: str) -> list[tuple[int, int, tuple[int, ...]]]:
    found = [word.split("/") for word in text.split()]
    return [(int(d), int(p), tuple(int(i) for i in index.split(",") if i)) for d, p, index in found]


def test_ops_that_move_elements_have_diagrams() -> None:
    assert {hk.parse(path.read_text(encoding="utf-8")).entry.root.opcode for path in FILES} == MOVED


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_cells_hold_what_the_reference_gives(path: Path) -> None:
    """And the elements that a cell is from are those that it changes with: of copies, the ones of equal value."""
    module = hk.parse(path.read_text(encoding="utf-8"))
    assert path.stem.startswith(module.entry.root.opcode)
    operands = {place: int(c.get("data-value", "")) for c in cells(path, "operand") for place in places(c.get("data-index", ""))}
    shapes = [p.shape for p in module.entry.parameters]
    given = [[np.zeros(s.dimensions, s.dtype.numpy) for s in shapes] for _ in range(module.replica_count)]
    for (device, number, index), value in operands.items():
        given[device][number][index] = value
    results = hk.evaluate(module, *given) if len(given) > 1 else [hk.evaluate(module, *given[0])]
    shown = cells(path, "result")
    assert len(shown) == sum(result.size for result in results)
    is_linear = module.entry.root.opcode not in ("convolution", "dot")
    for cell in shown:
        ((device, _, index),) = places(cell.get("data-index", ""))
        assert int(cell.get("data-value", "")) == results[device][index]
        sources = places(cell.get("data-from", ""))
        if sources and is_linear:
            assert sum(operands[place] for place in sources) == results[device][index]


@pytest.mark.parametrize(("name", "count"), [("reduce-window-padded", 6 * 6 - 4 * 4), ("convolution-strided", 2), ("pad", 0)])
def test_padding_that_a_window_sees_is_drawn(name: str, count: int) -> None:
    text = (diagram.FOLDER / f"{name}.hlo").read_text(encoding="utf-8")
    root = ET.fromstring(diagram.svg(diagram.diagram(text)))
    assert len([c for c in root.iter("{http://www.w3.org/2000/svg}rect") if c.get("class") == "padding"]) == count


def test_a_picture_can_be_kept() -> None:
    figure = diagram.figure((diagram.FOLDER / "reduce-window-padded.hlo").read_text(encoding="utf-8"))
    name, content = re.findall(r'download="([^"]*)" href="data:image/svg\+xml;base64,([^"]*)"', figure)[0]
    assert name == "reduce-window-size-3x3-pad-1_1x1_1.svg"
    assert ET.fromstring(base64.b64decode(content)).tag == "{http://www.w3.org/2000/svg}svg"


def test_what_cannot_be_drawn_is_refused() -> None:
    sums = (diagram.FOLDER / "reduce.hlo").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="focus"):
        diagram.diagram(re.sub("// focus.*\n", "", sums))
    with pytest.raises(ValueError, match="caption"):
        diagram.diagram("HloModule m\n")
