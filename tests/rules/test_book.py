"""The rule book in the package: read, found by label, shown in errors, the command and the documentation."""

from __future__ import annotations

import ast
import re
import tomllib
import traceback
from email.message import Message
from pathlib import Path

import numpy as np
import pytest

import hlokit as hk
from docs import generate
from hlokit import rules
from hlokit.hlo.op import OPS
from hlokit.tools.main import main
from hlokit.tools.ops import functions_of, made_by, reference, rules_of
from tests.test_registry import output_of

ROOT = Path(__file__).parents[2]
FAMILIES = {label.rpartition("-")[0] for label in rules.rules()}


def test_every_rule_line_is_read_and_labels_are_unique() -> None:
    lines = [line for name in rules.CHAPTERS for line in rules.chapter(name).splitlines()]
    written = [line.split("`")[1] for line in lines if line.startswith("- `")]
    assert written == list(rules.rules())
    assert {path.stem for path in Path(rules.__file__).parent.glob("*.md")} == {*rules.CHAPTERS}
    assert all(rule.text and rule.section and {*rule.sources} <= {*rules.SOURCES} for rule in rules.rules().values())


def named(*texts: str) -> set[str]:
    """The labels in the texts: what looks like one and is of a family that there is (AVX-512 is no label)."""
    return {label for text in texts for label in rules.LABEL.findall(text) if label.rpartition("-")[0] in FAMILIES}


def test_labels_in_the_source_exist() -> None:
    for path in (ROOT / "src/hlokit").rglob("*.py"):
        strings = [n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        bracketed = {label for text in strings for label in re.findall(rf"\[({rules.LABEL.pattern})\]", text)}
        assert bracketed | named(*strings) <= {*rules.rules()}, path
    assert all({*op.rules.split()} <= FAMILIES | {*rules.rules()} for op in OPS.values())


def test_labels_in_the_chapters_exist() -> None:
    assert named(*(rule.text for rule in rules.rules().values())) <= {*rules.rules()}


def test_each_attribute_has_a_meaning() -> None:
    known = tomllib.loads((ROOT / "src/hlokit/rules/attributes.toml").read_text(encoding="utf-8"))
    named = {(op.opcode, a.text) for op in OPS.values() for a in op.attributes if a is not op.result_shape and not a.hidden}
    for opcode, attribute in named:
        assert re.fullmatch(r"[a-zA-Z\d].*[^.]", rules.attribute_meaning(opcode, attribute)), (opcode, attribute)
    own = {(opcode, attribute) for opcode, found in known.items() if isinstance(found, dict) for attribute in found}
    assert own <= named
    assert {name for name, found in known.items() if isinstance(found, str)} == {a for o, a in named if (o, a) not in own}


def test_no_rule_names_a_file() -> None:
    """Readers of an error see one rule: it refers to others by their labels."""
    assert not [label for label, rule in rules.rules().items() if ".md" in rule.text]


def test_explain() -> None:
    rule = hk.explain("bcast-3")
    assert rule is hk.explain("BCAST-3") and rule.kind == "C" and "different ranks" in rule.text.lower()
    assert "<b>BCAST-3</b>" in rule._repr_html_() and "<code>broadcast_dimensions</code>" in rule._repr_html_()


def test_a_rule_comes_with_the_symbols_that_its_section_defines() -> None:
    assert "\nLet I = start_indices" in str(hk.explain("GATHER-15")) and "\nLet" not in str(hk.explain("DSLICE-1"))
    page = reference(OPS["gather"])
    assert page.index("Rules:\n\nLet I = start_indices") < page.index("GATHER-1`")


def test_a_notebook_links_to_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = hk.explain("BCAST-3")
    monkeypatch.setattr(rules, "_documentation", lambda: "https://x.org/")
    address = "https://x.org/reference/rules/broadcasting.html#bcast-3"
    assert rule.url == address and f'<a href="{address}"><b>BCAST-3</b></a>' in rule._repr_html_()
    monkeypatch.setattr(rules, "_documentation", lambda: "")
    assert rule.url == "" and "<a href" not in rule._repr_html_()


def test_the_address_of_the_documentation_is_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Documentation"]
    installed = Message()
    installed["Project-URL"] = "Source, https://x.org/source"
    installed["Project-URL"] = f"Documentation, {declared}"
    monkeypatch.setattr("importlib.metadata.metadata", lambda _: installed)
    assert rules._documentation.__wrapped__() == declared and declared.endswith("/")


def test_an_unknown_label_names_its_neighbours() -> None:
    with pytest.raises(hk.ArgumentError, match=r"no rule 'BCAST-'; did you mean BCAST-"):
        hk.explain("BCAST-")


def explained(*labels: str, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], str]:
    """The labels of the rules that the command prints, and what it writes to stderr."""
    with pytest.raises(SystemExit):
        main(["explain", *labels])
    out, err = capsys.readouterr()
    return re.findall(r"^([A-Z0-9-]+) \(", out, re.MULTILINE), err


def test_the_command_explains_labels_families_and_ops(capsys: pytest.CaptureFixture[str]) -> None:
    assert explained("TRANSP-3", "bcast-3", capsys=capsys) == (["TRANSP-3", "BCAST-3"], "")
    assert explained("TOKEN", capsys=capsys)[0] == [label for label in rules.rules() if label.startswith("TOKEN-")]
    assert {"BIN-1", "BEY-8", "BEY-9", "HOP-3"} <= {*explained("power", capsys=capsys)[0]}
    assert "no rule 'NOPE-1'" in explained("NOPE-1", capsys=capsys)[1]


def test_an_op_has_the_rules_of_its_card_its_base_classes_and_its_text() -> None:
    assert [rule.label for rule in rules_of(OPS["topk"])] == ["BEY-36", "BEY-37", "BEY-38", "HOP-21"]
    assert all(rules_of(op) for op in OPS.values())
    maximum = {rule.label for rule in rules_of(OPS["maximum"])}
    assert {"BIN-1", "BIN-7", "MAX-1"} <= maximum and not maximum & {"BIN-5", "BIN-6", "BIN-8"}  # of And, Add, Or


def test_a_traceback_ends_in_the_rule() -> None:
    b = hk.Builder("t")
    with pytest.raises(hk.ShapeError) as caught:
        hk.add(b.parameter(0, hk.f32[2, 3]), b.parameter(1, hk.f32[3]))
    shown = traceback.format_exception_only(caught.value)
    assert shown[-1] == f"BCAST-3: {hk.explain('BCAST-3').text}\n" and "[BCAST-3]" in shown[0]
    caught.value.add_note("mine")
    assert traceback.format_exception_only(caught.value)[-2:] == [shown[-1], "mine\n"]


def test_a_rule_is_shown_once_and_only_if_it_is_short() -> None:
    long = next(label for label, rule in rules.rules().items() if len(rule.text) > 160 and ". " not in rule.text)
    error = hk.VerifyError(["a: x [BCAST-3]", "b: y [BCAST-3]", f"c: z [{long}]", "d: no label [NOPE-1]"])
    assert error.__notes__ == [f"BCAST-3: {hk.explain('BCAST-3').text}"]
    assert hk.UnsupportedError("no label").__notes__ == []


def test_the_command_shows_the_rule_below_the_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.hlo"
    path.write_text("ENTRY e { x = f32[2] parameter(0)\n ROOT y = f32[3] negate(x) }")
    with pytest.raises(SystemExit):
        main(["check", str(path)])
    error = capsys.readouterr().err
    (label,) = re.findall(r"\[([A-Z]+-\d+)\]", error)
    note = error.splitlines()[-1]
    assert label == "HINST-2" and note == "  HINST-2: A given shape that contradicts the inferred one is rejected."
    assert hk.explain(label).text.startswith(note.removeprefix("  HINST-2: ")), "the first sentence of a long rule"


def test_rules_are_read_when_they_are_asked_for() -> None:
    assert output_of("import sys, hlokit; print(hlokit.rules.rules.cache_info().misses)") == "0"


def test_pages_have_an_anchor_for_each_rule_and_links_that_lead_to_one() -> None:
    pages = generate.reference_pages()
    anchors = {(name, label) for name in rules.CHAPTERS for label in re.findall(r'<a id="([^"]+)">', pages[f"rules/{name}.md"])}
    assert anchors == {(rule.chapter, label.lower()) for label, rule in rules.rules().items()}
    links = {link for text in pages.values() for link in re.findall(r'href="(?:\.\./rules/)?(\w+)\.html#([^"]+)"', text)}
    assert len(links) > 500 and links <= anchors
    assert "`GATHER-3`" not in pages["ops/gather.md"] and "gather-3" in pages["ops/gather.md"]


def test_the_page_of_each_op_has_an_example() -> None:
    """Of its rules, of a function of the builder that makes it, or a text of its card."""
    for opcode, op in OPS.items():
        page = reference(op)
        assert "\nExamples:\n" in page or "\n>>> " in page or "\nIn text:\n" in page, opcode
        assert bool(op.example) <= (not made_by().get(op)), f"{opcode}: {made_by()[op]} have the examples"


@pytest.mark.parametrize("opcode", sorted(opcode for opcode, op in OPS.items() if op.example))
def test_examples_of_cards(opcode: str) -> None:
    """They are programs in which the op stands, and run."""
    module = hk.parse(f"HloModule m\n\n{OPS[opcode].example}")
    assert opcode in {i.opcode for i in module.entry.instructions}
    hk.evaluate(module, *(np.zeros(p.shape.dimensions, p.shape.dtype.numpy) for p in module.entry.parameters))


def test_which_functions_make_an_op() -> None:
    made = {opcode: {*made_by().get(op, {})} for opcode, op in OPS.items()}
    assert made["add"] == {"add"} and made["all-reduce"] == {"all_reduce", "all_reduce_tuple"}  # by a private function
    assert {"b.constant", "broadcast", "broadcast_in_dim"} <= made["broadcast"] and made["iota"] == {"b.iota"}
    assert [*functions_of(OPS["dot"])] == ["dot", "batch_dot", "dot_general"]  # two of them by the third
    assert "while_loop" in functions_of(OPS["while"]) and "eq" in functions_of(OPS["compare"])
    assert made["async-done"] == set() and made["custom-call"] >= {"custom_call", "dynamic_conv_forward"}
