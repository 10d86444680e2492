"""Draws what an op does to the elements of its operands: an SVG of each program in docs/diagrams.

    python -m docs.diagram FILE [OUT]

A program's first line is a comment, the caption. Its root is the op. Its parameters hold the numbers 0, 1, 2, ...,
the second from 100 on and so forth; from 1 on if elements of the result are made from several, so that sums are
short. Which elements of the parameters an element of the result depends on is found by running the reference again
with one element changed. If each is a copy of one, it has its colour; else those that the comment `// focus:` names
(as `row,column`, of devices `device:row,column`) are outlined, with those that they are made from. Constants among
the operands are grey. Padding and holes around and between the elements that a window moves over are dashed cells.
"""

from __future__ import annotations

import base64
import html
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import hlokit as hk

FOLDER = Path(__file__).parent / "diagrams"
CELL, GAP, LABEL, CHARACTER = 34, 30, 20, 7.3
_DEVICE_STEP = 10

Place = tuple[int, int, tuple[int, ...]]
"""Of an element: device, parameter, index."""


@dataclass
class Diagram:
    """What is drawn: a program, its arguments and results by device, and where each element of the results is from."""

    caption: str
    module: hk.HloModule
    arguments: list[list[np.ndarray]]
    results: list[np.ndarray]
    origins: dict[tuple[int, tuple[int, ...]], frozenset[Place]]
    focus: list[tuple[int, tuple[int, ...]]]

    @property
    def copies(self) -> bool:
        """Whether no element of the result is made from several."""
        return all(len(places) <= 1 for places in self.origins.values())


def diagram(text: str) -> Diagram:
    """The diagram of a program with a caption."""
    caption = re.match(r"// (.*)", text)
    if caption is None:
        raise ValueError("the first line is not a caption, // ...")
    module = hk.parse(text)
    named = re.search(r"^// focus: (.*)", text, re.MULTILINE)
    focus = [_element(word) for word in named[1].split()] if named else []
    origins = _origins(module)
    step = 1 if any(len(places) > 1 for places in origins.values()) else 100
    arguments = _arguments(module, lambda device, number, size: device * _DEVICE_STEP + number * step + np.arange(size))
    made = Diagram(caption[1], module, arguments, _run(module, arguments), origins, focus)
    if not made.copies and not focus:
        raise ValueError(f"{caption[1]}: elements are made from several others, and no // focus: says which to outline")
    return made


def _element(word: str) -> tuple[int, tuple[int, ...]]:
    device, _, index = word.rpartition(":")
    return int(device or 0), tuple(int(number) for number in index.split(","))


def _arguments(module: hk.HloModule, numbers: Any) -> list[list[np.ndarray]]:
    shapes = [p.shape for p in module.entry.parameters]
    return [
        [np.asarray(numbers(d, k, s.size), s.dtype.numpy).reshape(s.dimensions) for k, s in enumerate(shapes)]
        for d in range(module.replica_count)
    ]


def _run(module: hk.HloModule, arguments: list[list[np.ndarray]]) -> list[np.ndarray]:
    if module.replica_count == 1:
        return [hk.evaluate(module, *arguments[0])]
    return hk.evaluate(module, *arguments)


def _origins(module: hk.HloModule) -> dict[tuple[int, tuple[int, ...]], frozenset[Place]]:
    """For each element of the results those of the parameters on which it depends."""
    random = np.random.default_rng(0)
    arguments = _arguments(module, lambda device, number, size: random.integers(1, 1_000, size))
    before = _run(module, arguments)
    found: dict[tuple[int, tuple[int, ...]], set[Place]] = {
        (device, index): set() for device, result in enumerate(before) for index in np.ndindex(result.shape)
    }
    for device, values in enumerate(arguments):
        for number, value in enumerate(values):
            for index in np.ndindex(value.shape):
                value[index] += 1_000_003
                for other, (old, new) in enumerate(zip(before, _run(module, arguments), strict=True)):
                    for changed in zip(*np.nonzero(np.atleast_1d(old != new)), strict=True):
                        place = tuple(int(i) for i in changed) if old.ndim else ()
                        found[other, place].add((device, number, index))
                value[index] -= 1_000_003
    return {key: frozenset(places) for key, places in found.items()}


# -- drawing


@dataclass
class Drawing:
    """SVG in the making; units are pixels."""

    parts: list[str] = field(default_factory=list[str])
    width: float = 0
    height: float = 0

    def text(self, x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> None:
        attributes = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{attributes}>{html.escape(content)}</text>')
        right = x + len(content) * CHARACTER * {"start": 1, "middle": 0.5, "end": 0}[anchor]
        self.width, self.height = max(self.width, right), max(self.height, y + 6)

    def cell(self, x: float, y: float, content: str, data: str, fill: str, outlines: Sequence[int]) -> None:
        """A square with a number; `outlines`: which of the elements in focus it belongs to."""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{CELL}" height="{CELL}" {fill} {data}/>')
        for k, which in enumerate(outlines):
            inset = 3 + 4 * k
            self.parts.append(
                f'<rect x="{x + inset:g}" y="{y + inset:g}" width="{CELL - 2 * inset}" height="{CELL - 2 * inset}" '
                f'class="focus{which}"/>'
            )
        self.text(x + CELL / 2, y + CELL / 2 + 4, content, "number", "middle")
        self.width, self.height = max(self.width, x + CELL), max(self.height, y + CELL)

    def padding(self, x: float, y: float) -> None:
        """A square that holds no element."""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{CELL}" height="{CELL}" class="padding"/>')
        self.width, self.height = max(self.width, x + CELL), max(self.height, y + CELL)


def svg(shown: Diagram) -> str:
    """The diagram as SVG for a page: text and lines in the page's colour, so that it is readable in dark mode."""
    drawing = Drawing()
    devices = len(shown.arguments)
    y = 0.0
    for device in range(devices):
        x, top = 0.0, y
        if devices > 1:
            drawing.text(0, top + LABEL + CELL / 2 + 4, f"device {device}", "label")
            x = 84
        bottom = top
        for title, array, kind in _operands(shown, device):
            x, bottom = _array(drawing, shown, x, top, title, array, (device, kind), bottom)
            x += GAP
        if x > (84 if devices > 1 else 0):
            drawing.text(x - GAP + 4, top + LABEL + CELL / 2 + 4, "→", "arrow")
            x += 4
        root = shown.module.entry.root
        title = root.opcode if devices == 1 else ""
        title = f"{title} {root.shape}".strip()
        x, bottom = _array(drawing, shown, x, top, title, shown.results[device], (device, None), bottom)
        y = bottom + 14
    width, height = drawing.width + 4, drawing.height + 4
    return (
        f'<svg class="hlo-diagram" role="img" xmlns="http://www.w3.org/2000/svg" viewBox="-2 -2 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}">\n<title>{html.escape(shown.caption)}</title>\n'
        f"<style>\n{STYLE}</style>\n" + "\n".join(drawing.parts) + "\n</svg>\n"
    )


STYLE = """\
.hlo-diagram { max-width: 100%; height: auto; font: 12px ui-monospace, monospace; fill: currentColor; }
.hlo-diagram rect { stroke: currentColor; stroke-opacity: .45; }
.hlo-diagram .given { fill: currentColor; fill-opacity: .1; }
.hlo-diagram .plain { fill: none; }
.hlo-diagram .padding { fill: none; stroke: #888; stroke-dasharray: 3 3; }
.hlo-diagram .label, .hlo-diagram .arrow { fill-opacity: .8; }
.hlo-diagram .arrow { font-size: 20px; }
.hlo-diagram .focus0 { fill: none; stroke: #d9534f; stroke-opacity: 1; stroke-width: 2.5; }
.hlo-diagram .focus1 { fill: none; stroke: #3b82d0; stroke-opacity: 1; stroke-width: 2.5; stroke-dasharray: 5 3; }
"""


def figure(text: str) -> str:
    """The diagram as HTML: picture, caption and program. No line is empty, so that Markdown takes it as one block."""
    shown = diagram(text)
    picture = svg(shown)
    # on a page the text has the page's colour; a file is shown on white and on black
    alone = picture.replace("fill: currentColor; }", "fill: currentColor; color: #888; }", 1)
    address = "data:image/svg+xml;base64," + base64.b64encode(alone.encode()).decode()
    name = re.sub(r"\W+", "-", f"{shown.module.entry.root.opcode}-{shown.caption.partition(':')[0]}").strip("-")
    program = "\n".join(line for line in text.splitlines() if line and not line.startswith("//"))
    return (
        f'<figure class="hlo">\n{picture}<figcaption>{html.escape(shown.caption)} · '
        f'<a class="hlo-download" download="{name}.svg" href="{address}">download SVG</a></figcaption>\n'
        f"<details><summary>The program</summary><pre>{html.escape(program)}</pre></details>\n</figure>\n"
    )


def _operands(shown: Diagram, device: int) -> Iterator[tuple[str, np.ndarray, int | None]]:
    """Title, value and parameter number of each array that the root reads; constants have no number."""
    for operand in dict.fromkeys(shown.module.entry.root.operands):
        if operand.opcode == "parameter":
            number = operand.op.number
            yield f"{operand.name} {operand.shape}", shown.arguments[device][number], number
        elif operand.opcode == "constant":
            yield f"{operand.name} {operand.shape}", np.asarray(operand.op.literal.to_python()), -1
        else:
            raise ValueError(f"{operand.name} is not a parameter or a constant")


def _array(
    drawing: Drawing,
    shown: Diagram,
    x: float,
    y: float,
    title: str,
    array: np.ndarray,
    which: tuple[int, int | None],
    bottom: float,
) -> tuple[float, float]:
    """Draws an array, the last two dimensions as rows and columns; where it ends, and the lowest y so far."""
    title = re.sub(r"\{[\d,]*\}$", "", title)
    drawing.text(x, y + 12, title, "label")
    drawn = [d for d, size in enumerate(array.shape) if size != 1 or array.ndim <= 2 or d >= array.ndim - 2]
    if array.ndim > 2 and array.shape[-1] == 1:  # one feature: the dimensions before it
        drawn = [d for d, size in enumerate(array.shape) if size != 1]
    folded = array.reshape([array.shape[d] for d in drawn] or [1] * min(1, array.ndim))
    blocks = folded.reshape(-1, *([1] * (2 - folded.ndim)), *folded.shape[-2:])
    places = np.arange(array.size).reshape(blocks.shape)
    around = _around(shown, which[1], array.ndim)
    (above, below, down), (before, after, across) = [(0, 0, 1)] * (2 - len(drawn)) + [around[d] for d in drawn[-2:]]
    right, top = x, y + LABEL
    for block, numbers in zip(blocks, places, strict=True):
        rows, columns = ((size - 1) * step + 1 for size, step in zip(block.shape, (down, across), strict=True))
        for line, place in np.ndindex(above + rows + below, before + columns + after):
            left, height = x + place * CELL, top + line * CELL
            right = max(right, left + CELL)
            (row, hole), (column, gap) = divmod(line - above, down), divmod(place - before, across)
            if hole or gap or not (0 <= row < block.shape[0] and 0 <= column < block.shape[1]):
                drawing.padding(left, height)
                continue
            index = tuple(int(i) for i in np.unravel_index(numbers[row, column], array.shape)) if array.ndim else ()
            value = int(block[row, column])
            drawing.cell(left, height, str(value), *_look(shown, which, index, value))
        top += (above + rows + below) * CELL + 8
    return max(right, x + len(title) * CHARACTER), max(bottom, top - 8)


def _around(shown: Diagram, number: int | None, rank: int) -> list[tuple[int, int, int]]:
    """For each dimension of an array the padding before and after it that a window sees, and the distance."""
    found = [(0, 0, 1)] * rank
    root = shown.module.entry.root
    windowed = root.operands[0] if root.opcode in ("reduce-window", "select-and-scatter", "convolution") else None
    if windowed is None or windowed.opcode != "parameter" or windowed.op.number != number:
        return found
    moved = root.op.dim_labels.input_spatial_dimensions if root.opcode == "convolution" else range(rank)
    for d, window in zip(moved, root.op.window.dimensions, strict=True):
        found[d] = max(0, window.padding_low), max(0, window.padding_high), window.base_dilation
    return found


def _look(
    shown: Diagram, which: tuple[int, int | None], index: tuple[int, ...], value: int
) -> tuple[str, str, list[int]]:
    """Data, fill and outlines of an element."""
    device, number = which
    if number == -1:
        return 'data-array="given"', 'class="given"', []
    if number is None:
        places = shown.origins[device, index]
        sources = " ".join(sorted(_written(place) for place in places))
        data = f'data-array="result" data-index="{_written((device, 0, index))}" data-value="{value}"'
        data += f' data-from="{sources}"'
        outlines = [k for k, element in enumerate(shown.focus) if element == (device, index)]
        place = next(iter(places), None) if shown.copies else None
    else:
        place = (device, number, index)
        data = f'data-array="operand" data-index="{_written(place)}" data-value="{value}"'
        outlines = [k for k, element in enumerate(shown.focus) if place in shown.origins[element]]
    if place is None or not shown.copies:
        return data, 'class="given"' if number is None and shown.copies else 'class="plain"', outlines
    return data, f'fill="{_colour(shown, place)}" fill-opacity=".42"', outlines


def _written(place: Place) -> str:
    return f"{place[0]}/{place[1]}/{','.join(map(str, place[2]))}"


def _colour(shown: Diagram, place: Place) -> str:
    """Of an element of a parameter: neighbours in hue have neighbouring numbers; of devices one hue each."""
    device, number, index = place
    values = shown.arguments[device]
    if len(shown.arguments) > 1:
        return f"hsl({360 * device // len(shown.arguments)} 75% 55%)"
    before = sum(value.size for value in values[:number])
    position = before + (int(np.ravel_multi_index(index, values[number].shape)) if index else 0)
    return f"hsl({330 * position // max(1, sum(value.size for value in values))} 75% 55%)"


def main(file: str, out: str | None = None) -> None:
    text = svg(diagram(Path(file).read_text(encoding="utf-8")))
    if out is None:
        print(text, end="")
    else:
        Path(out).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
