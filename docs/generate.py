"""Writes what comes out of the registry: the tables in README.md and docs/stablehlo.md, and docs/reference/ops.md; and
from the tables of tests/jax_functions what docs/jax.md says of JAX's functions.

    python docs/generate.py [--check]

With --check nothing is written, and the exit status says whether all are up to date (a test runs this).
"""

from __future__ import annotations

import ast
import os
import sys
from collections import Counter
from pathlib import Path

import hlokit
from hlokit.cpu import compiler as _compiler  # noqa: F401  # fills KERNELS
from hlokit.cpu.kernels.routine import KERNELS
from hlokit.hlo.op import OPS, Op
from hlokit.stablehlo.mapping import CHLO, OTHERS, STABLEHLO
from hlokit.stablehlo.printer.mapping import RULES as WRITERS
from hlokit.tools.ops import reference, summary

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- table: begin (docs/generate.py) -->", "<!-- table: end -->"
WRITTEN = "<!-- written: begin (docs/generate.py) -->", "<!-- written: end -->"


def builder_functions() -> dict[str, list[str]]:
    """Op class name -> the builder functions whose code names that class, itself or through private helpers."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src/hlokit/builder").glob("*.py")):
        body = ast.parse(path.read_text()).body
        methods = [m for node in body if isinstance(node, ast.ClassDef) and node.name == "Builder" for m in node.body]
        names = {name: _named(node) for node in body + methods if (name := _defined(node)) and name != "Builder"}
        for name in names:
            if name.startswith("_") or not (hasattr(hlokit, name) or hasattr(hlokit.Builder, name)):
                continue
            for op in _reached(name, names):
                found.setdefault(op, []).append(name if hasattr(hlokit, name) else f"b.{name}")
    return found


def _named(node: ast.stmt) -> set[str]:
    """Every name and attribute in the code."""
    named = [n for n in ast.walk(node) if isinstance(n, (ast.Attribute, ast.Name))]
    return {n.attr if isinstance(n, ast.Attribute) else n.id for n in named}


def _reached(name: str, names: dict[str, set[str]]) -> set[str]:
    """What `name` names, and what the private definitions that it names do."""
    reached, pending = set[str](), [name]
    while pending:
        for other in names[pending.pop()] - reached:
            reached.add(other)
            if other.startswith("_") and other in names:
                pending.append(other)
    return reached


def _defined(node: ast.stmt) -> str | None:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return None


def has_reference(op: type[Op]) -> bool:
    return op.reference is not Op.reference or op.opcode == "parameter"


def compiled(op: type[Op]) -> str:
    """How machine code does it, as far as the card tells: a routine may leave a case to the reference."""
    if op.opcode in _PADDED:
        return "by padding"
    if op.form in ("map", "index", "fold", "scatter"):
        return "loops"
    if op.form == "kernel":
        return "routine" if op.opcode in KERNELS else "reference"
    if op.form == "expand":
        return "expanded"
    if op.opcode == "custom-call":
        return "LAPACK; else reference"
    if op.transfer is not Op.transfer:
        return "native exchange"
    return _CONTROL.get(op.opcode, "reference")


_PADDED = ("dynamic-reshape", "get-dimension-size", "set-dimension-size")
_CONTROL = {
    **dict.fromkeys(("while", "conditional"), "control flow"),
    **dict.fromkeys(("call", "fusion"), "inlined"),
    **dict.fromkeys(("parameter", "tuple", "get-tuple-element", "opt-barrier", "domain"), "no code"),
    **dict.fromkeys(("add-dependency", "after-all"), "no code"),
}


def table() -> str:
    functions = builder_functions()
    lines = ["| op | builder | text | interpreter | compiled |", "| --- | --- | --- | --- | --- |"]
    for opcode in sorted(OPS):
        op = OPS[opcode]
        names = functions.get(op.__name__, [])
        made = ", ".join(f"`{name}`" for name in names[:3]) + (", ..." if len(names) > 3 else "")
        interpreted = "yes" if has_reference(op) else "no"
        lines.append(f"| {opcode} | {made or '-'} | yes | {interpreted} | {compiled(op)} |")
    return "\n".join(lines)


def ops_page() -> str:
    lines = ["# Op reference", ""]
    lines += ["Made from the op classes by docs/generate.py; `hlokit ops NAME` prints the same.", ""]
    lines += [f"- [{opcode}](#{opcode}): {summary(OPS[opcode])}" for opcode in sorted(OPS)]
    for opcode in sorted(OPS):
        lines += ["", reference(OPS[opcode]).replace("# ", "## ", 1)]
    return "\n".join(lines) + "\n"


def stablehlo_table() -> str:
    """The operations that are read, by dialect and by the file that lowers them."""
    rows: dict[tuple[str, str], list[str]] = {}
    for dialect, rules in (("stablehlo", STABLEHLO), ("chlo", CHLO), ("others", OTHERS)):
        for name in sorted(rules):
            rows.setdefault((dialect, rules[name].__module__.rpartition(".")[2]), []).append(f"`{name}`")
    lines = ["| dialect | file | operations |", "| --- | --- | --- |"]
    lines += [f"| {dialect} | {file}.py | {', '.join(names)} |" for (dialect, file), names in rows.items()]
    return "\n".join(lines)


def written_table() -> str:
    """The ops that are written as StableHLO, by the file that does it; then those that are expanded first."""
    rows: dict[str, list[str]] = {}
    for opcode in sorted(OPS):
        file = f"{WRITERS[opcode].__module__.rpartition('.')[2]}.py" if opcode in WRITERS else "expanded first"
        rows.setdefault(file, []).append(f"`{opcode}`")
    lines = ["| file | ops |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {file} | {', '.join(rows[file])} |" for file in sorted(rows))])


def jax_functions() -> str:
    """The public functions of JAX that the tests compare with its CPU client, and those that hlokit refuses."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.path.insert(0, str(ROOT))
    from tests.jax_functions.table import cases

    works = {case.name: case.module for case in cases().values() if not case.unsupported}
    refused = {case.name: case.reason for case in cases().values() if case.unsupported}
    counts = Counter(works.values())
    lines = [f"The tests compare {len(works)} functions in {len(counts)} public modules with JAX's CPU client:", ""]
    lines += [", ".join(f"`{module}` {count}" for module, count in sorted(counts.items())) + "."]
    lines += ["", "Of what they try, this does not work:" if refused else "All of them agree."]
    lines += ["", *(f"- `{name}`: {reason}" for name, reason in sorted(refused.items()))] if refused else []
    return "\n".join(lines)


def with_table(page: str, table: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """The page with this between its marks."""
    (head, rest), (begin, end) = page.split(marks[0]), marks
    return f"{head}{begin}\n{table}\n{end}{rest.split(end)[1]}"


def main() -> None:
    readme, stablehlo, jax = (ROOT / name for name in ("README.md", "docs/stablehlo.md", "docs/jax.md"))
    pages = {
        readme: with_table(readme.read_text(), table()),
        stablehlo: with_table(with_table(stablehlo.read_text(), stablehlo_table()), written_table(), WRITTEN),
        jax: with_table(jax.read_text(), jax_functions()),
        ROOT / "docs/reference/ops.md": ops_page(),
    }
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not up to date: run python docs/generate.py")
        sys.exit(bool(stale))
    for path in stale:
        path.write_text(pages[path])


if __name__ == "__main__":
    main()
