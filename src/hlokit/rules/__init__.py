"""The rule book: the rules of the language, numbered, in one Markdown file for each chapter.

A rule is one line of its chapter, "- `LABEL` [kind] text [source] ...". Labels are never renumbered or reused. Error
messages, `hlokit explain`, the op pages and this site all take a rule's text from these chapters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

KINDS = {
    "S": "result shape or type",
    "V": "result value",
    "C": "constraint",
    "E": "edge case",
    "I": "implementation-defined",
    "A": "ambiguous",
    "X": "example",
    "D": "derived example",
}
SOURCES = {
    "SI": "XLA's shape inference",
    "B": "XlaBuilder, or XLA's HLO parser",
    "HV": "XLA's HLO verifier",
    "SH": "the StableHLO specification",
    "CPU": "observed on XLA:CPU, jaxlib 0.10.2",
    "TXT": "observed of the HLO text parser and printer, jaxlib 0.10.2",
    "doc": "XLA's documentation",
    "X": "hlokit's decision",
}
CHAPTERS = (
    "foundations",
    "broadcasting",
    "elementwise",
    "data_movement",
    "indexing",
    "contraction",
    "reduction_windows",
    "control_flow",
    "collectives",
    "communication",
    "linalg_fft_rng_sort",
    "dynamic_shapes",
    "later_operations",
    "partitioning",
    "hlo_text",
)
LABEL = re.compile(r"\b[A-Z][A-Z0-9]*(?:-[A-Z]+)*-[0-9]+\b")
_RULE = re.compile(r"- `([A-Z0-9-]+)` \[([SVCEIAXD])\] (.*?)((?:\s*\[[A-Za-z]+\])*)\s*")
_SENTENCE = re.compile(r"(?<=\.) (?=[A-Z(])")
_SHORT = 160


@dataclass(frozen=True)
class Rule:
    """A rule of the language.

    label      its name in errors, docstrings and tests, e.g. "BCAST-3"
    kind       a key of KINDS; `sources`: keys of SOURCES, empty where XLA's documentation says so itself
    text       the rule, in Markdown
    chapter    the name of the chapter's file, e.g. "broadcasting"; `section`: the heading that the rule stands under
    notation   the section's paragraph that defines symbols of its rules; empty if there is none
    """

    label: str
    kind: str
    text: str
    sources: tuple[str, ...]
    chapter: str
    section: str
    notation: str = ""

    @property
    def page(self) -> str:
        """The place of the rule in the documentation, below its root."""
        return f"reference/rules/{self.chapter}.html#{self.label.lower()}"

    @property
    def url(self) -> str:
        """The rule in the documentation; "" where the package is not installed."""
        root = _documentation()
        return root and root + self.page

    def __str__(self) -> str:
        sources = f"\nSource: {'; '.join(SOURCES[source] for source in self.sources)}." if self.sources else ""
        notation = f"\n{self.notation}" if self.notation else ""
        return f"{self.label} ({self.section}; {KINDS[self.kind]})\n{self.text}{notation}{sources}"

    def _repr_html_(self) -> str:
        from html import escape

        text = re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(str(self), quote=False))
        label = f"<b>{self.label}</b>"
        if self.url:
            label = f'<a href="{escape(self.url)}">{label}</a>'
        return "".join(f"<p>{line}</p>" for line in text.replace(self.label, label, 1).split("\n"))


@cache
def _documentation() -> str:
    """The address that pyproject.toml has among [project.urls], as the installed package tells it."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        urls = metadata("hlokit").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    return next((url.partition(", ")[2] for url in urls if url.startswith("Documentation, ")), "")


@cache
def chapter(name: str) -> str:
    """The chapter's Markdown."""
    from importlib.resources import files  # 5 ms, which only those who read rules pay

    return files(__name__).joinpath(f"{name}.md").read_text(encoding="utf-8")


@cache
def _attributes() -> Mapping[str, Any]:
    import tomllib
    from importlib.resources import files

    return tomllib.loads(files(__name__).joinpath("attributes.toml").read_text(encoding="utf-8"))


def attribute_meaning(opcode: str, attribute: str) -> str:
    """The meaning of an op's attribute of HLO text, as a phrase. KeyError for an attribute that no op has.

    >>> attribute_meaning("gather", "collapsed_slice_dims")
    'operand dimensions of slice size 1 that the result leaves out'
    """
    known = _attributes()
    own: Any = known.get(opcode)  # text where an attribute has the op's name
    return known[attribute] if isinstance(own, str) or own is None or attribute not in own else own[attribute]


@cache
def rules() -> Mapping[str, Rule]:
    """All rules by label, in the order of the chapters."""
    return {rule.label: rule for name in CHAPTERS for rule in _rules_of(name)}


def _rules_of(name: str) -> Iterable[Rule]:
    section = notation = ""
    for line in chapter(name).splitlines():
        if line.startswith("#"):
            section, notation = re.sub(r" \[\w+\]$", "", line.lstrip("# ")), ""
        elif line.startswith("Let "):
            notation = line
        elif found := _RULE.fullmatch(line):
            label, kind, text, sources = found.groups()
            yield Rule(label, kind, text, tuple(re.findall(r"[A-Za-z]+", sources)), name, section, notation)


def selected(labels: str) -> list[Rule]:
    """The rules that a list of labels and prefixes stands for: "BIN BEY-8" is BIN-1, BIN-2, ..., BEY-8."""
    named = {*labels.split()}
    return [rule for rule in rules().values() if {rule.label, rule.label.rpartition("-")[0]} & named]


def sentences(labels: Iterable[str]) -> list[str]:
    """A line "LABEL: text" for each label, once, in the order given.

    Of a long rule it is the first sentence; a rule whose first sentence is long too is left out.
    """
    texts = {label: rules()[label].text for label in labels if label in rules()}
    short = {label: text if len(text) <= _SHORT else _SENTENCE.split(text, 1)[0] for label, text in texts.items()}
    return [f"{label}: {text}" for label, text in short.items() if len(text) <= _SHORT]
