"""The page of XLA's own texts: what the suite's output becomes."""

from __future__ import annotations

from tests.text.xla_texts import NOT_JUDGED, Finding, findings, page, reasons

OUTPUT = """  xla.a_test.cc.001.hlo: good; {"parse": "refused", "why": "line 1: x [HINST-2]\\n  y"}
  xla.a_test.cc.002.hlo: good; {"parse": "accepted", "run": "values differ"}
  xla.b.hlo.000.hlo: bad; {"parse": "accepted"}
corpus interpreter: parses 9 of 10 (90.00 %); same text 9 of 10 (90.00 %); agrees 1 of 2 (50.00 %); refuses what XLA refuses 1 of 2 (50.00 %)
"""


def test_what_is_found() -> None:
    first, second, third = findings(OUTPUT)
    assert first == Finding("xla.a_test.cc", "001", "refused", "line 1: x [HINST-2]\n  y")
    assert (second.kind, second.what) == ("a different result", "values differ")
    assert (third.file, third.number, third.kind) == ("xla.b.hlo", "000", "read, but not by jaxlib")


def test_the_page_lists_each_text_under_its_reason() -> None:
    text = page(OUTPUT, {("xla.a_test.cc", "001"): "a reason"})
    assert "\n| read by hlokit, of the modules that jaxlib reads | 9 of 10 (90.00 %) |\n" in text
    assert "\n| refused by hlokit, of the modules that jaxlib refuses | 1 of 2 (50.00 %) |\n" in text
    assert "## Refused: 1\n\n- a reason: 1\n  - `xla.a_test.cc` 001 (HINST-2)\n" in text
    assert f"## A different result: 1\n\n- {NOT_JUDGED}: 1\n  - `xla.a_test.cc` 002\n" in text


def test_no_text_has_two_reasons() -> None:
    known = reasons()
    listed = [(t.split()[0], n) for row in _rows() for t in row["texts"] for n in t.split()[1:]]
    assert len(listed) == len(known) == len(set(listed))


def _rows() -> list[dict[str, list[str]]]:
    import tomllib

    from tests.text.xla_texts import REASONS

    return tomllib.loads(REASONS.read_text(encoding="utf-8"))["reason"]
