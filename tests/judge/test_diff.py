"""`hk.diff`: what corresponds, what is told of it, and how."""

import json
import random
from html.parser import HTMLParser

import pytest

import hlokit as hk
from tests.golden.programs import BUNDLED, program_names, read_program
from tests.judge.edits import LEAST, edited, found_in, large
from tests.view.test_page import data_of

BASE = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[4,8] parameter(0)
  c = f32[] constant(2)
  w = f32[4,8] broadcast(c), dimensions={}
  y = f32[4,8] multiply(x, w)
  z = f32[] constant(0)
  ROOT r = f32[4] reduce(y, z), dimensions={1}, to_apply=sum
}"""


def told(a: str, b: str, **options: object) -> list[str]:
    return str(hk.diff(hk.parse(a), hk.parse(b), **options)).splitlines()  # type: ignore[arg-type]


def test_names_and_order_do_not_count() -> None:
    other = """HloModule other
g { q = f32[] parameter(1) p = f32[] parameter(0) ROOT t = f32[] add(p, q) }
ENTRY f {
  zero = f32[] constant(0)
  two = f32[] constant(2)
  big = f32[4,8] broadcast(two), dimensions={}
  in = f32[4,8] parameter(0)
  v = f32[4,8] multiply(in, big)
  ROOT r = f32[4] reduce(v, zero), dimensions={1}, to_apply=g
}"""
    assert hk.diff(hk.parse(BASE), hk.parse(other)).is_equal
    assert told(BASE, other) == ["HloModule m -> other: 9 same"]
    assert not hk.diff(hk.parse(BASE), hk.parse(other), ignore=["metadata"]).is_equal


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("constant(2)", "constant(3)", "literal: 2 -> 3"),
        ("multiply(x, w)", "multiply(x, x)", "operand 1: %w -> %x"),
        ("multiply(x, w)", "add(x, w)", "opcode: multiply -> add"),
        ("f32[] add(a, b)", "f32[] maximum(a, b)", "opcode: add -> maximum"),
        (
            "f32[4] reduce(y, z), dimensions={1}, to_apply=sum",
            "f32[8] reduce(y, z), dimensions={0}, to_apply=sum",
            "dimensions: {1} -> {0}",
        ),
        ("multiply(x, w)", "multiply(x, w), sharding={replicated}", "sharding: none -> {replicated}"),
        ("y = f32[4,8]", "y = f32[4,8]{0,1}", "shape: f32[4,8]{1,0} -> f32[4,8]{0,1}"),
        ("multiply(x, w)", "multiply(x, w), control-predecessors={c}", "control-predecessors: () -> (%c)"),
    ],
)
def test_one_change_is_told_where_it_is_made(old: str, new: str, change: str) -> None:
    found = hk.diff(hk.parse(BASE), hk.parse(BASE.replace(old, new)))
    pairs = [pair for c in found.computations for pair in c.pairs if pair.kind != "same"]
    assert change in [f"{c.what}: {c.a or 'none'} -> {c.b or 'none'}" for p in pairs for c in p.changes]
    assert len(pairs) == 1
    assert not found.is_equal


@pytest.mark.parametrize(
    ("aspect", "old", "new"),
    [
        ("layouts", "y = f32[4,8]", "y = f32[4,8]{0,1}"),
        ("shardings", "multiply(x, w)", "multiply(x, w), sharding={replicated}"),
        ("metadata", "multiply(x, w)", 'multiply(x, w), metadata={op_name="f"}'),
        ("names", "ENTRY e {", "ENTRY other {"),
    ],
)
def test_an_aspect_counts_unless_it_is_ignored(aspect: str, old: str, new: str) -> None:
    a, b = hk.parse(BASE), hk.parse(BASE.replace(old, new))
    assert hk.diff(a, b, ignore=[aspect]).is_equal
    assert not hk.diff(a, b, ignore=()).is_equal


def test_large_constants_are_told_by_elements() -> None:
    text = "HloModule m\nENTRY e {{ ROOT c = f32[20] constant({{{}}}) }}"
    numbers = [str(n) for n in range(20)]
    a = hk.parse(text.format(",".join(numbers)))
    b = hk.parse(text.format(",".join(["7", *numbers[1:-1], "-1"])))
    assert "literal: {...} -> {...} (2 of 20 elements differ)" in str(hk.diff(a, b))


def test_what_moves_to_another_computation_is_told_so() -> None:
    fused = """HloModule m
f { p = f32[4] parameter(0) k = f32[4] sine(p) ROOT l = f32[4] cosine(k) }
ENTRY e { x = f32[4] parameter(0) n = f32[4] negate(x) ROOT y = f32[4] fusion(n), kind=kLoop, calls=f }"""
    plain = """HloModule m
ENTRY e { x = f32[4] parameter(0) n = f32[4] negate(x) s = f32[4] sine(n) ROOT c = f32[4] cosine(s) }"""
    found = hk.diff(hk.parse(plain), hk.parse(fused))
    assert {p.a.opcode: p.b.parent.name for c in found.computations for p in c.pairs if p.moved and p.a and p.b} == {  # type: ignore[union-attr]
        "sine": "f",
        "cosine": "f",
    }
    assert "    moved to %f" in str(found)


def test_another_place_in_the_schedule_is_told() -> None:
    text = """HloModule m, is_scheduled=true
ENTRY e { x = f32[4] parameter(0) n = f32[4] negate(x) s = f32[4] sine(x) ROOT c = f32[4] add(n, s) }"""
    n, s = "n = f32[4] negate(x)", "s = f32[4] sine(x)"
    other = text.replace(n, "@").replace(s, n).replace("@", s)
    found = hk.diff(hk.parse(text), hk.parse(other))
    assert found.counts["moved"] == 1
    assert not found.is_equal
    free = [t.replace(", is_scheduled=true", "") for t in (text, other)]
    assert hk.diff(*map(hk.parse, free)).is_equal


def test_every_instruction_is_told_once() -> None:
    """In a computation's pairs, or alone; pairs are pairs both ways."""
    for name in program_names(BUNDLED)[:6]:
        pair = edited(hk.parse(read_program(BUNDLED, name).hlo), 6, 1)
        pairs = {id(p): p for c in hk.diff(pair.a, pair.b).computations for p in c.pairs}.values()
        for side, module in ((0, pair.a), (1, pair.b)):
            told = [i.name for p in pairs if (i := (p.a, p.b)[side]) is not None]
            assert sorted(told) == sorted(i.name for i in module.instructions())


def test_known_edits_are_found() -> None:
    """`python -m tests.judge.edits` has more of them."""
    wanted = right = total = 0
    modules = [hk.parse(read_program(BUNDLED, name).hlo) for name in program_names(BUNDLED)[::3]] + [large(800, 0)]
    for module in modules:
        pair = edited(module, 5, 7)
        found, expected = found_in(hk.diff(pair.a, pair.b)), pair.wanted()
        wanted, right, total = wanted + expected.total(), right + (found & expected).total(), total + found.total()
    assert wanted > 60
    assert right / wanted >= LEAST - 0.01
    assert right / total >= LEAST - 0.01


def test_alike_chains_are_not_told_crosswise() -> None:
    """Below an edit values differ, and chains of the same ops, side by side, are told apart by what uses their ends."""
    for seed in (1, 5, 6, 7):
        pair = edited(large(700, 6), 5, seed)
        assert found_in(hk.diff(pair.a, pair.b)) == pair.wanted(), seed


def test_equal_modules_in_any_order_are_equal() -> None:
    for name in program_names(BUNDLED)[::5]:
        pair = edited(hk.parse(read_program(BUNDLED, name).hlo), 0, 3)
        assert hk.diff(pair.a, pair.b).is_equal


def test_bad_arguments() -> None:
    module = hk.parse(BASE)
    with pytest.raises(hk.ArgumentError, match="expected an HloModule"):
        hk.diff(module, BASE)  # type: ignore[arg-type]
    with pytest.raises(hk.ArgumentError, match="cannot ignore colours: choose from names, metadata, layouts, shardings"):
        hk.diff(module, module, ignore=["colours"])


def test_json_has_what_the_text_has() -> None:
    found = hk.diff(hk.parse(BASE), hk.parse(BASE.replace("constant(2)", "constant(3)")))
    value = json.loads(json.dumps(found.to_json()))
    assert value["counts"] == {"same": 8, "changed": 1, "moved": 0, "a": 0, "b": 0}
    assert value["equal"] is False
    (computation,) = value["computations"]
    assert computation["instructions"] == [
        {"kind": "changed", "a": "c", "b": "c", "moved": False, "changes": [{"what": "literal", "a": "2", "b": "3"}]}
    ]


class _Page(HTMLParser):
    """The elements of a page, with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_names_are_never_markup_in_the_page() -> None:
    """Whatever a module says: a script, a tag, characters that turn the direction of writing."""
    hostile = r"\"></script><script>alert(1)</script><img src=x onerror=alert(2)>" + "\\342\\200\\256x"
    text = 'HloModule m\nENTRY e {{ x = f32[2] parameter(0) ROOT y = f32[2] {}(x), frontend_attributes={{k="{}"}} }}'
    a, b = (hk.parse(text.format(op, hostile)) for op in ("negate", "sine"))
    view = hk.diff(a, b, ignore=()).view()
    page = _Page(view.html)
    assert not page.tags & {"img", "b", "a", "iframe", "object", "link"}
    assert not [name for name in page.attributes if name.startswith("on")]
    assert "<script>alert(1)</script>" in "".join(data_of(view)["strings"])
    assert "\u202e" not in view.html and "default-src 'none'" in view.html
    short = hk.diff(a, b, ignore=())._repr_html_()
    assert "alert(1)" in short and _Page(short).tags == {"details", "summary", "pre", "span"} and "\u202e" not in short


def test_the_page_has_both_sides() -> None:
    found = hk.diff(hk.parse(BASE), hk.parse(BASE.replace("constant(2)", "constant(3)")))
    data = data_of(found.view())
    rows = [row for c in data["diff"][0]["computations"] for row in c["rows"] if row[0] == "changed"]
    assert ["constant(2)" in row[1] and "constant(3)" in row[2] for row in rows] == [True]
    first, second = (data["strings"][data["stages"][n]["text"][rows[0][4 + n]]] for n in (0, 1))
    assert "constant(2)" in first and "constant(3)" in second
    assert data["stages"][1]["kinds"][rows[0][5]] == "changed" and data["stages"][1]["origins"][rows[0][5]] == [
        rows[0][4],
        0,
    ]
    assert found.to_html() == found.view().html == found.to_html()


def test_the_same_text_for_any_order_of_the_input() -> None:
    module = hk.parse(read_program(BUNDLED, program_names(BUNDLED)[0]).hlo)
    pair = edited(module, 4, 5)
    first = str(hk.diff(pair.a, pair.b))
    random.seed(1)
    assert str(hk.diff(pair.a.clone(), pair.b.clone())) == first
