"""hlokit explain: the rules of the language by their labels."""

from __future__ import annotations

import json as json_module
from typing import Annotated

from cyclopts import Parameter

from hlokit.api import explain as explain_label
from hlokit.hlo.op import OPS
from hlokit.rules import Rule, selected
from hlokit.tools.ops import rules_of


def explain(*labels: Annotated[str, Parameter(required=True)], json: bool = False) -> None:
    """Prints rules of the language, each with its text, its kind and its source.

    Parameters
    ----------
    labels:
        labels of rules, e.g. BCAST-3; prefixes of labels, e.g. BCAST for a whole family; opcodes, e.g. reduce-window,
        for all rules of an op.
    json:
        print JSON.
    """
    found: list[Rule] = []
    for name in labels:
        found += (rules_of(OPS[name]) if name in OPS else selected(name.upper())) or [explain_label(name)]
    if json:
        rows = [{"label": r.label, "kind": r.kind, "text": r.text, "chapter": r.chapter} for r in found]
        print(json_module.dumps(rows, indent=2))
        return
    for rule in found:
        print(f"{rule}\n")
