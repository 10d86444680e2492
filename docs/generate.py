"""Writes the generated parts of the documentation: from the registry the tables in docs/ops.md, docs/grammar.md and
docs/stablehlo.md, from the tables of tests/jax/functions the list of JAX's functions in docs/jax.md, from docstrings
the packages in docs/architecture.md. The pages in docs/reference are written by `sphinx-build`.

    python -m docs.generate [--check]

With --check nothing is written, and the exit status says whether all are up to date (a test runs this).
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
import textwrap
from collections import Counter
from dataclasses import is_dataclass
from functools import cache, cached_property
from pathlib import Path

import hlokit
from docs import diagram
from hlokit import rules
from hlokit.builder.documentation import entries, split
from hlokit.cpu import compiler as _compiler  # noqa: F401  # fills KERNELS
from hlokit.cpu.kernels.routine import KERNELS
from hlokit.debugger.debugger import Debugger
from hlokit.hlo.lineage import Lineage
from hlokit.hlo.op import OPS, Op
from hlokit.interop import xla_client
from hlokit.judge.compare.comparing import Comparison, Judgement
from hlokit.judge.conform.conforming import Conformance
from hlokit.judge.diff.differences import ModuleDiff
from hlokit.judge.fuzz.campaign import Campaign
from hlokit.judge.reduce.search import Reduction
from hlokit.passes.partitioner import Partitioned
from hlokit.proto.snapshot import Snapshot
from hlokit.runtime.devices import DeviceExecutable
from hlokit.runtime.executable import Executable
from hlokit.runtime.inspection import LiveRange, MemoryAnalysis
from hlokit.runtime.profile import Profile, StepProfile
from hlokit.stablehlo.mapping import CHLO, OTHERS, STABLEHLO
from hlokit.stablehlo.printer.mapping import RULES as WRITERS
from hlokit.tools.inputs import arguments_for
from hlokit.tools.ops import functions_of, reference, summary
from hlokit.types import attributes as kinds
from hlokit.types.dtype import DTYPES, DType
from hlokit.view.page import View

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "hlokit"
BEGIN, END = "<!-- table: begin (docs/generate.py) -->", "<!-- table: end -->"
WRITTEN = "<!-- written: begin (docs/generate.py) -->", "<!-- written: end -->"


def has_reference(op: type[Op]) -> bool:
    return op.reference is not Op.reference or op.opcode == "parameter"


def compiled(op: type[Op]) -> str:
    """How machine code does it, as far as the card tells: a routine may leave a case to the reference."""
    if op.opcode in _PADDED:
        return "by padding"
    if op.form in ("map", "index", "fold", "scatter"):
        return "loops"
    if op.form in ("kernel", "contraction"):
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
    lines = ["| op | builder | text | interpreter | compiled |", "| --- | --- | --- | --- | --- |"]
    for opcode in sorted(OPS):
        op = OPS[opcode]
        names = [*functions_of(op)]
        made = ", ".join(f"`{name}`" for name in names[:3]) + (", ..." if len(names) > 3 else "")
        interpreted = "yes" if has_reference(op) else "no"
        lines.append(f"| {opcode} | {made or '-'} | yes | {interpreted} | {compiled(op)} |")
    return "\n".join(lines)


def reference_pages() -> dict[str, str]:
    """The pages below docs/reference by name: an index of the ops, a page for each, the rule book's chapters."""
    how = "[How each op is compiled](../ops.md). `hlokit ops NAME` prints an op's page."
    index = ["# All ops", "", how, "", _PICTURES, ""]
    index += [f"- [{opcode}](ops/{opcode}.md): {summary(OPS[opcode])}" for opcode in sorted(OPS)]
    pages = {"ops.md": "\n".join(index) + _toctree("ops"), "rules.md": _how_to_read() + _toctree("rules")}
    pages["modules.md"] = modules_page()
    pages |= {f"ops/{opcode}.md": _op_page(opcode) for opcode in sorted(OPS)}
    pages |= {"gallery.md": _gallery_index()} | {f"gallery/{p.stem}.md": _gallery_page(p) for p in _gallery()}
    pages |= {"api.md": _api_index()} | {f"api/{name}.md": _api_page(name) for name in API}
    pages["api/xla_client.md"] = _xla_client_page()
    pages |= {"errors.md": _errors_index()} | {f"errors/{name}.md": _error_page(name) for name in api_names("errors")}
    return pages | {f"rules/{name}.md": _anchored(name) for name in rules.CHAPTERS}


_PICTURES = """\
Pages of ops that move data have pictures. In a clone of the repository `python -m docs.diagram FILE OUT.svg` draws the
picture of a program of yours: of its last op, with the first line of the file, `// ...`, as the caption."""


def _toctree(folder: str) -> str:
    return f"\n\n```{{toctree}}\n:hidden:\n:glob:\n\n{folder}/*\n```\n"


def _gallery() -> list[Path]:
    return sorted((ROOT / "docs/gallery").glob("*.hlo"))


def _gallery_index() -> str:
    stages = "Programs at every stage: HLO text, after the passes, loops, LLVM IR, assembly, and a profile."
    lines = ["# Gallery", "", stages, ""]
    lines += [":::::{grid} 1 1 2 3", ":gutter: 3", ""]
    for path in _gallery():
        title, description, *_ = _captions(path)
        lines += [f"::::{{grid-item-card}} [{title}](gallery/{path.stem}.md)", "", description, "::::", ""]
    return "\n".join([*lines, ":::::"]) + _toctree("gallery")


def _captions(path: Path) -> list[str]:
    """The title, the description, the name of the diagram and the text in the comments that a program of the gallery
    begins with."""
    found = re.match(r"// (.+)\n// (.+)\n(?:// diagram: (.+)\n)?((?://.*\n)*)", path.read_text(encoding="utf-8"))
    assert found is not None
    return [*found.groups("")[:3], re.sub(r"(?m)^// ?", "", found[4])]


@cache
def _opcodes(path: Path) -> list[str]:
    """The ops of a program in the order of their names, without those that every program has."""
    found = {i.opcode for c in hlokit.load(path).all_computations for i in c.instructions}
    return sorted(found - {"parameter", "constant", "tuple", "get-tuple-element"})


def _gallery_page(path: Path) -> str:
    """A program's stages as tabs, for AVX2, so that they are the same wherever the page is made; last, its profile."""
    title, description, drawn, text = _captions(path)
    module = hlokit.load(path)
    compiled = hlokit.compile(module, target="x86-64-avx2")
    source = "\n".join(line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("//"))
    routines = _ROUTINE if "routine" in compiled.as_text("loops") else ""
    stages = [("HLO", source), ("After the passes", compiled.as_text("hlo")), ("Loops", compiled.as_text("loops"))]
    stages += [(name, _hottest(compiled.as_text(stage))) for name, stage in (("LLVM IR", "llvm"), ("Assembly", "asm"))]
    ops = ", ".join(f"[{opcode}](../ops/{opcode}.md)" for opcode in _opcodes(path))
    lines = [f"# {title}", "", description, "", f"Ops: {ops}.", ""]
    lines += [f"```{{hlo-diagram}} {drawn}", "```", ""] if drawn else []
    lines += [text, "::::{tab-set}"]
    for name, stage in stages:
        lines += [f":::{{tab-item}} {name}", "```text", stage.strip("\n"), "```"]
        lines += ["", routines, ":::"] if name == "Loops" and routines else [":::"]
    profile = hlokit.compile(module).profile(*arguments_for(module, (), 0), repeat=20)
    lines += [":::{tab-item} Profile", "```text", str(profile).strip("\n"), "```", _PROFILED, ":::"]
    return "\n".join([*lines, "::::", "", _OF_ANY]) + "\n"


_OF_ANY = """\
For a program of your own, `hlokit compile FILE --emit loops` (or `hlo`, `llvm`, `asm`) prints a stage, and
`hlokit run FILE --input f32[4,8]=1` runs it on [values that you give](../../command.md#arguments). In a clone of the
repository `python -m docs.diagram FILE OUT.svg` draws the picture of a program's last op; the first line of the file is
the caption, `// ...`."""
_ROUTINE = """\
hlokit writes the LLVM IR of a routine (a product, a convolution, a sort) directly, not from a list of loops: see the
next tab."""
_PROFILED = """\
`print(hk.compile(module).profile(*arguments, repeat=20))`, on the machine that built this page: the median time of each
step, and what part of the machine's memory bandwidth and arithmetic it reaches."""
_SHOWN, _WHOLE = 70, 200
"""Lines of LLVM IR and assembly on a page, and up to how many all are shown."""


def _hottest(text: str) -> str:
    """The lines about the densest vector arithmetic: the innermost loop."""
    lines = text.splitlines()
    if len(lines) <= _WHOLE:
        return text
    dense = [bool(re.search(r"vfmadd|vmulps|llvm\.fma|fmul", line)) for line in lines]
    starts = range(max(1, len(lines) - _SHOWN))
    start = max(starts, key=lambda k: (sum(dense[k : k + _SHOWN]), -k))
    head, tail = ["..."] if start else [], ["..."] if start + _SHOWN < len(lines) else []
    return "\n".join([*head, *lines[start : start + _SHOWN], *tail])


def _op_page(opcode: str) -> str:
    """What `hlokit ops` prints, with the op's diagrams before its operands."""
    text = re.sub(r"(?m)^(- `[A-Z0-9-]+` )(.*)$", lambda rule: rule[1] + _literal(rule[2]), reference(OPS[opcode]))
    text = re.sub(r"`hk\.(\w+)`", _function_linked, _linked(text, "../rules/"))
    figures = [diagram.figure(program) for program in _programs().get(opcode, ())]
    text = text.replace("\n- operands: ", "\n" + "\n".join([*figures, "- operands: "]), 1)
    shown = [f"[{_captions(path)[0]}](../gallery/{path.stem}.md)" for path in _gallery() if opcode in _opcodes(path)]
    how = compiled(OPS[opcode]) + (f" (machine code in the gallery: {', '.join(shown)})" if shown else "")
    text = text.replace("\n- lowering form: ", f"\n- compiled as: {how}\n- [lowering form](../../add_a_form.md): ", 1)
    table = r"(?m)^(\| attribute \|.*\n(?:\|.*\n)+)"
    text = re.sub(table, r":::{container} hlo-attributes\n\1:::\n", text)
    head, rules_title, rest = text.partition("\nRules:\n")
    return "\n".join([head, "", *_functions_of(opcode), "## Rules"[: 9 * bool(rules_title)], rest]) + "\n"


def _function_linked(found: re.Match[str]) -> str:
    """A function of hlokit as a link to its description."""
    known = found[1] in api_names("operations")
    return f"[{found[0]}](../api/operations.md#{_anchor(found[1])})" if known else found[0]


def _functions_of(opcode: str) -> list[str]:
    """The parameters of the first function that makes an op, and links to the others."""
    functions = functions_of(OPS[opcode])
    if not functions:
        return []
    links = [f"[`{name if name.startswith('b.') else f'hk.{name}'}`]({_described(name)})" for name in functions]
    name, function = next(iter(functions.items()))
    shown = name if name.startswith("b.") else f"hk.{name}"
    public = getattr(hlokit, name) if shown != name else function
    parameters = entries(split(inspect.getdoc(public) or "").get("Parameters", ""))
    lines = [f"## {shown}", "", f"`{shown}{_signature(public)}`", ""]
    lines += [_entry(*each) for each in parameters.items()]
    lines += ["", f"[Results, errors and examples]({_described(name)})", ""]
    lines += [f"Also: {', '.join(links[1:])}.", ""] if links[1:] else []
    return [_linked("\n".join(lines), "../rules/")]


def _described(name: str) -> str:
    """The address of the description of a function that makes ops, from their pages."""
    return f"../api/{'builder.md#api-builder-class' if name.startswith('b.') else f'operations.md#{_anchor(name)}'}"


@cache
def _programs() -> dict[str, list[str]]:
    """The programs of the diagrams by the op that they draw."""
    found: dict[str, list[str]] = {}
    for path in sorted(diagram.FOLDER.glob("*.hlo"), key=lambda path: path.stem):
        text = path.read_text(encoding="utf-8")
        found.setdefault(hlokit.parse(text).entry.root.opcode, []).append(text)
    return found


_IMPORTS = "Examples begin with `import hlokit as hk, numpy as np`."
API = {
    "programs": "Read, check, run and compile programs",
    "results": "Results of calls",
    "builder": "Builder and values",
    "operations": "Op functions",
    "types": "Types, shapes and attributes",
}
"""Pages of the reference of Python names, with their titles; each class of errors has a page of its own."""

RESULTS: dict[type, str] = {
    Executable: "compile",
    DeviceExecutable: "compile",
    Profile: "Executable.profile",
    StepProfile: "Executable.profile",
    MemoryAnalysis: "Executable.memory_analysis",
    LiveRange: "Executable.memory_analysis",
    View: "Executable.view",
    Debugger: "debug",
    Lineage: "optimize",
    Partitioned: "partition",
    ModuleDiff: "diff",
    Comparison: "compare_engines",
    Judgement: "Comparison.judgements",
    Conformance: "conform",
    Campaign: "fuzz",
    Reduction: "reduce_module",
    Snapshot: "load_snapshot",
}
"""Classes that are not names of `hlokit`, with the call that returns an object of them."""

INSIDE = {
    "Computation.__call__", "HloModule.__call__",
    "Debugger.found", "Debugger.held", "Debugger.resume", "Debugger.sources", "DType.array_shape",
    "Executable.compilation", "Executable.extra", "Executable.held", "Executable.on", "Executable.together",
    "Executable.use",
}  # fmt: skip
"""Members of public classes that other modules of hlokit use, and methods that only say what to call instead."""


def api_names(page: str) -> list[str]:
    """The public names that a page of API is about; each name is on one."""
    if page == "results":
        return [kind.__name__ for kind in RESULTS]
    return [name for name in sorted(hlokit.__all__, key=str.lower) if _api_page_of(name) == page]


def _api_page_of(name: str) -> str:
    value = getattr(hlokit, name)
    module = getattr(value, "__module__", "") or ""
    if inspect.isclass(value) and issubclass(value, Exception):
        return "errors"
    if name in ("Builder", "XlaOp", "Computation", "HloModule", "Instruction", "Op", "OPS"):
        return "builder"
    if module == "hlokit" and inspect.isfunction(value):
        return "operations"
    if inspect.isfunction(value) or name in ("Pass", "Pipeline", "PASSES", "Invocation"):
        return "types" if name in ("dtype", "parse_shape") else "programs"
    return "types"


def _api_index() -> str:
    lines = ["# Python names", "", f"Everything is in `hlokit`. {_IMPORTS}", ""]
    lines += ["```{toctree}", ":maxdepth: 1", "", *(f"api/{name}" for name in (*API, "xla_client")), "```", ""]
    for page, title in API.items():
        names = [f"[`{name}`](api/{page}.md#{_place(name)})" for name in api_names(page)]
        lines += [f"**{title}**: {', '.join(names)}.", ""]
    lines += [f"**[Errors](errors.md)**: {', '.join(f'[`{name}`](errors/{name}.md)' for name in api_names('errors'))}."]
    return "\n".join(lines) + "\n"


_OP_ERRORS = {
    "ShapeError": "The operands or the other arguments break a rule of the op, which the message names by its label.",
    "BuildError": "An operand is of another builder, or its builder has been built.",
}
_METHODS = ("Builder", "HloModule", "Pipeline")
"""Classes of the facade whose methods are on the pages of errors."""


@cache
def raised() -> dict[str, dict[str, str]]:
    """The errors that each public function and method documents, with the reasons; one entry for all op functions."""
    calls = {f"hk.{name}": getattr(hlokit, name) for name in hlokit.__all__}
    for owner in (*(getattr(hlokit, name) for name in _METHODS), Debugger, Executable, DeviceExecutable):
        found = {name: what for name, what in vars(owner).items() if name == "__call__" or not name.startswith("_")}
        names = {name: "a call of " * (name == "__call__") + owner.__name__ for name in found}
        calls |= {names[name] + f".{name}" * (name != "__call__"): what for name, what in found.items()}
    listed: dict[str, dict[str, str]] = {}
    for name, function in calls.items():
        if inspect.isfunction(function):
            reasons = entries(split(inspect.getdoc(function) or "").get("Raises", ""))
            if function.__module__ == "hlokit":
                listed["op functions"] = _OP_ERRORS
            else:
                listed[name] = reasons
    return {name: reasons for name, reasons in listed.items() if reasons}


_MAIN = (
    "hk.parse", "hk.load", "hk.verify", "hk.evaluate", "hk.evaluate_mpmd", "hk.compile", "a call of Executable",
    "a call of DeviceExecutable", "hk.optimize", "hk.export_object", "hk.to_stablehlo", "hk.to_stablehlo_artifact",
    "op functions", "Builder.parameter", "Builder.constant", "Builder.build",
)  # fmt: skip
"""The calls that the page of errors shows."""


def _errors_index() -> str:
    """The classes, and which of them the main calls raise."""
    how = "[How to read an error](../errors.md): messages, tracebacks, and which errors mean that the program is wrong."
    lines = ["# Errors by class", "", how, "", "| class | meaning |", "| --- | --- |"]
    for name in api_names("errors"):
        first = (inspect.getdoc(getattr(hlokit, name)) or "").split("\n")[0]
        lines += [f"| [`{name}`](errors/{name}.md) | {_linked(first, 'rules/')} |"]
    lines += ["", "## Which errors can a call raise", ""]
    lines += ["An unknown keyword argument raises Python's `TypeError`.", ""]
    for call in _MAIN:
        lines += [f"### {_called(call)}", ""]
        for name, reason in raised()[call].items():
            shown = f"[`{name}`](errors/{name}.md)" if hasattr(hlokit, name) else f"`{name}`"
            lines += [f"- {shown}: {_linked(' '.join(reason.split()), 'rules/')}"]
        lines += [""]
    lines += ["The other functions: [Python names](api.md), each with its errors."]
    return "\n".join(lines) + _toctree("errors")


def _called(name: str) -> str:
    """The name of a call as these pages show it."""
    if name.startswith("a call of "):
        return f"The result of `hk.compile`, when called: `{name.removeprefix('a call of ')}`"
    return "Op functions" if name == "op functions" else f"`{name}`"


def _error_page(name: str) -> str:
    """The meaning of a class of errors, its example, and the calls that document it."""
    kind = getattr(hlokit, name)
    lines = [f"# {name}", "", f"*class* `hk.{name}`, a kind of `{kind.__mro__[1].__name__}`", "", *_docstring(kind)]
    kinds = sorted(other.__name__ for other in kind.__subclasses__())
    lines += [f"Kinds of it: {', '.join(f'`{other}`' for other in kinds)}.", ""] if kinds else []
    calls = [call for call, reasons in raised().items() if name in reasons]
    lines += [f"Raised by {', '.join(_called(call) for call in calls)}.", ""] if calls else []
    lines += ["[Which errors can a call raise](../errors.md#which-errors-can-a-call-raise)"]
    return _linked("\n".join(lines), "../rules/") + "\n"


def _api_page(page: str) -> str:
    lines = [f"# {API[page]}", "", _IMPORTS, ""]
    if page == "types":
        lines += _element_types()
    if page == "operations":
        lines += _by_letter(api_names(page))
    made = {name: opcode for opcode in sorted(OPS) for name in functions_of(OPS[opcode])}
    for name in api_names(page):
        value = getattr(hlokit, name, None)
        if isinstance(value, DType):
            continue
        lines += [f"({_anchor(name)})=", f"## {name}", ""]
        if page == "results":
            value, call = next((kind, call) for kind, call in RESULTS.items() if kind.__name__ == name)
            lines += [f"*class* `{value.__module__}.{name}`, returned by `{call if '.' in call else f'hk.{call}'}`", ""]
            lines += [*_docstring(value), *_attributes(value), *_members(name, value)]
        elif inspect.isclass(value) and value.__name__ != name:
            lines += [f"Another name of [{value.__name__}](#{_anchor(value.__name__)}).", ""]
        elif inspect.isclass(value):
            made = _signature(value) if is_dataclass(value) else ""
            lines += [f"*class* `hk.{name}{made}`", ""]
            lines += [*_docstring(value), *_attributes(value), *_members(name, value)]
        elif inspect.isfunction(value):
            op = [f"Op: [{made[name]}](../ops/{made[name]}.md)", ""] if page == "operations" and name in made else []
            lines += [f"`hk.{name}{_signature(value)}`", "", *op, *_docstring(value)]
        else:
            lines += [f"`hk.{name}`: {_CONSTANTS[name]}", ""]
    return _linked("\n".join(lines), "../rules/") + "\n"


def _by_letter(names: list[str]) -> list[str]:
    """Links to the names, a line for each first letter."""
    letters: dict[str, list[str]] = {}
    for name in names:
        letters.setdefault(name[0].upper(), []).append(f"[{name}](#{_anchor(name)})")
    return [f"**{letter}** {', '.join(links)}\n" for letter, links in letters.items()]


_CONSTANTS = {
    "DTYPES": "the element types by name, a dictionary",
    "NIL": "the shape of the empty tuple, `()`",
    "OPAQUE": "the shape of an opaque value, `opaque[]`",
    "OPS": "the classes of ops by opcode, a dictionary",
    "PASSES": "the classes of passes by name, a dictionary",
    "TOKEN": "the shape of a token, `token[]`",
}
"""Public names that are neither functions nor classes nor element types."""


def _element_types() -> list[str]:
    """A table of the element types."""
    lines = ["## Element types", "", "`hk.NAME[2, 3]` is a shape, `hk.NAME[()]` that of a scalar.", ""]
    lines += ["| name | kind | bits | NumPy type |", "| --- | --- | --- | --- |"]
    types = [value for name in hlokit.__all__ if isinstance(value := getattr(hlokit, name), DType)]
    for dtype in sorted(types, key=lambda dtype: list(DTYPES).index(dtype.name)):
        lines += [f"| `{dtype.name}` | {dtype.kind} | {dtype.bits} | `{dtype.numpy.name}` |"]
    return [*lines, ""]


def members(owner: type) -> dict[str, object]:
    """The public methods and properties of a class, its call among them, and of bases that are not public."""
    public_classes = [*(getattr(hlokit, name) for name in hlokit.__all__), *RESULTS]
    inside = [base for base in owner.__mro__[1:] if base.__module__.startswith("hlokit") and base not in public_classes]
    found: dict[str, object] = {}
    everything = {name: value for base in (*inside[::-1], owner) for name, value in vars(base).items()}
    for name, value in sorted(everything.items()):
        value = getattr(value, "__func__", value)
        public = (not name.startswith("_") or name == "__call__") and f"{owner.__name__}.{name}" not in INSIDE
        if public and (inspect.isfunction(value) or isinstance(value, (property, cached_property))):
            found[name] = value
    return found


def _members(name: str, owner: type) -> list[str]:
    lines: list[str] = []
    for member, what in members(owner).items():
        if member == "__call__":
            head = [f"### Calls of {'an' if name[0] in 'AEIOU' else 'a'} {name}", "", f"`run{_signature(what)}`"]
        else:
            head = [f"### {name}.{member}", "", f"`{member}{_signature(what)}`"]
        lines += [*head, "", *_docstring(what)]
    return lines


def attributes(owner: type) -> dict[str, str]:
    """The public data that a class adds to its bases: what its body and `__init__` assign, with the string below."""
    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0].body  # type: ignore[attr-defined]
    made = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    found: dict[str, str] = {}
    for nodes in (body, *(list(ast.walk(node)) for node in made)):
        for node, after in zip(nodes, [*nodes[1:], None], strict=True):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in [part for whole in targets for part in getattr(whole, "elts", [whole])]:
                of_self = isinstance(target, ast.Attribute) and getattr(target.value, "id", "") == "self"
                name = target.id if nodes is body and isinstance(target, ast.Name) else target.attr if of_self else "_"
                if not name.startswith("_") and f"{owner.__name__}.{name}" not in INSIDE:
                    text = ast.literal_eval(after.value) if isinstance(after, ast.Expr) and nodes is body else ""
                    found[name] = found.get(name) or " ".join(text.split())
    bases = [base for base in owner.__mro__[1:] if base.__module__.startswith("hlokit")]
    return {name: text for name, text in found.items() if not any(name in attributes(base) for base in bases)}


def _attributes(owner: type) -> list[str]:
    """The attributes that strings below them describe."""
    lines = [f"- `{name}`: {text}" for name, text in attributes(owner).items() if text]
    return ["**Attributes**", "", *lines, ""] if lines else []


def _xla_client_page() -> str:
    """The functions and classes of hlokit.interop.xla_client; op functions by the function of hlokit that each is."""
    supported = "`from hlokit.interop import xla_client as xc`: [supported names and differences](../../xla_client.md)."
    lines = ["# xla_client", "", supported]
    found = {**vars(xla_client.xla_extension), **vars(xla_client)}
    for name in sorted(found, key=str.lower):
        value = found[name]
        if getattr(value, "__module__", "").startswith(xla_client.__name__) and inspect.isroutine(value):
            lines += ["", f"## {name}", "", f"`{name}{_signature(value)}`", "", *_docstring(value)]
        elif getattr(value, "__module__", "").startswith(xla_client.__name__) and inspect.isclass(value):
            lines += ["", f"## {name}", "", f"*class* `xc.{name}`", "", *_docstring(value), *_members(name, value)]
    lines += ["", "## ops", "", "| function | described by |", "| --- | --- |"]
    for name, function in sorted(xla_client.ops.FUNCTIONS.items()):
        lines += [f"| `{name}` | {function.described_by} |"]
    return _linked("\n".join(lines), "../rules/") + "\n"


def _place(name: str) -> str:
    """The anchor of a public name on its page."""
    return "element-types" if isinstance(getattr(hlokit, name, None), DType) else _anchor(name)


def _anchor(name: str) -> str:
    """Lower case, as Sphinx has it; `hk.dtype` and `hk.DType` differ."""
    return "api-" + name.lower().strip("_").replace("_", "-") + ("" if name.islower() else "-class")


def _signature(function: object) -> str:
    if isinstance(function, (property, cached_property)):
        getter = function.func if isinstance(function, cached_property) else function.fget
        kind = getattr(getter, "__annotations__", {}).get("return")
        return f": {kind}" if kind else ""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(function)))  # type: ignore[arg-type]
    text = re.sub(r"\((?:self|cls)(?:, )?", "(", text, count=1)
    return text.removesuffix(" -> None").replace("collections.abc.", "").replace("hlokit.types.dimension_numbers.", "")


def _docstring(value: object) -> list[str]:
    """A docstring as Markdown: examples as sessions, parameters, results and errors as lists."""
    found = split(inspect.getdoc(value) or "")
    lines = _paragraphs(found.pop(""))
    for title, text in found.items():
        if title == "Examples":
            lines += _paragraphs(text)
        else:
            lines += [f"**{title}**", "", *(_entry(head, what) for head, what in entries(text).items()), ""]
    return lines


def _entry(head: str, text: str) -> str:
    """A parameter, result or error as an item of a list."""
    names, colon, kind = head.partition(" : ")
    names = ", ".join(f"`{name}`" for name in names.split(", ")) if colon else names
    return f"- {names}{f' ({kind})' if colon else ''}: {' '.join(text.split())}"


def _paragraphs(text: str) -> list[str]:
    """Text as Markdown: examples as sessions, tables of names as lists."""
    lines: list[str] = []
    for part in re.split(r"\n\s*\n", text):
        text = textwrap.dedent(part)
        if text.startswith(">>>"):
            lines += ["```pycon", text, "```", ""]
        elif re.match(r"[\w*, ]+ {2,}\S", text):
            for line in text.split("\n"):
                head = re.match(r"([\w*]+(?:, [\w*]+)*)(?: {2,}(\S.*))?$", line)
                lines += [f"- `{head[1]}`: {head[2] or ''}".rstrip()] if head else [f"  {line.strip()}"]
            lines += [""]
        else:
            lines += [text, ""]
    return lines


def _how_to_read() -> str:
    lines = ["# The rule book", "", inspect.getdoc(rules) or "", "", "Kinds of rules:", ""]
    lines += [f"- {kind}: {what}" for kind, what in rules.KINDS.items()]
    lines += ["", "Sources, at the end of a rule (one without is from XLA's documentation of operations):", ""]
    lines += [f"- [{source}]: {what}" for source, what in rules.SOURCES.items()]
    lines += ["", _NOTATION, ""]
    lines += [f"- [{rules.chapter(name).splitlines()[0].lstrip('# ')}](rules/{name}.md)" for name in rules.CHAPTERS]
    return "\n".join(lines) + "\n"


_NOTATION = """\
A constraint is checked when an op is made, unless it says "at run time": what breaks it is rejected with an error that
names the op, the argument, what was found and what was expected.

Notation: `x.shape` is the list of dimension sizes, rank(x) their number, `T[d0,d1]` an array of element type T;
`[a, b)` includes a but not b; ceil_div(a, b) = -(-a // b). Array literals are nested braces in row-major order. "Same
shape" ignores layouts. All attributes are integers known at compile time."""


def _anchored(name: str) -> str:
    """A chapter in which each rule is an anchor, and the rules that it names are links."""
    title, *rest = rules.chapter(name).splitlines()
    lines, fenced = [title, "", _LEGEND], False
    for line in rest:
        fence = line.startswith("```")
        fenced ^= fence
        head = re.match(r"- `([A-Z0-9-]+)` |[-*] |", line)
        assert head is not None
        start = f'- <a id="{head[1].lower()}"></a>`{head[1]}` ' if head[1] else head[0]
        lines.append(line if fenced or fence else start + _linked(_literal(line[head.end() :]), ""))
    return "\n".join(lines) + "\n"


_KINDS = ", ".join(f"[{kind}] {what}" for kind, what in rules.KINDS.items())
_LEGEND = f"After a rule's label stands its kind, {_KINDS}; after its text its [sources](../rules.md)."


def _literal(text: str) -> str:
    """The text as Markdown in which all signs but backticks stand for themselves."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if k % 2 else re.sub(r"[*_~<\[\]\\]", r"\\\g<0>", part) for k, part in enumerate(parts))


def _linked(text: str, folder: str) -> str:
    """The text, in which labels of rules are links."""
    book = rules.rules()

    def link(found: re.Match[str]) -> str:
        rule = book.get(found[1] or found[2])
        if rule is None:
            return found[0]
        return f'<a href="{folder}{rule.chapter}.html#{rule.label.lower()}"><code>{rule.label}</code></a>'

    pattern = rules.LABEL.pattern
    return "".join(
        part if k % 2 else re.sub(rf"`({pattern})`|(?<![`\w-])({pattern})(?![`\w-])", link, part)
        for k, part in enumerate(re.split(r"(^```.*?^```)", text, flags=re.MULTILINE | re.DOTALL))
    )


def write_reference() -> None:
    """Writes docs/reference, and takes out what an earlier version wrote there."""
    folder, pages = ROOT / "docs/reference", reference_pages()
    for path in folder.rglob("*.md"):
        if path.relative_to(folder).as_posix() not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def stablehlo_table() -> str:
    """The operations that are read, by dialect and by the file that lowers them."""
    rows: dict[tuple[str, str], list[str]] = {}
    for dialect, known in (("stablehlo", STABLEHLO), ("chlo", CHLO), ("others", OTHERS)):
        for name in sorted(known):
            rows.setdefault((dialect, known[name].__module__.rpartition(".")[2]), []).append(f"`{name}`")
    lines = ["| dialect | file | operations |", "| --- | --- | --- |"]
    lines += [f"| {dialect} | {file}.py | {', '.join(names)} |" for (dialect, file), names in rows.items()]
    return "\n".join(lines)


def written_table() -> str:
    """The ops that are written as StableHLO, by the file that does it; then those that are expanded first."""
    rows: dict[str, list[str]] = {}
    for opcode in sorted(OPS):
        if opcode not in WRITERS and OPS[opcode].form != "expand":
            raise ValueError(f"{opcode} has no rule in stablehlo/printer")
        file = f"{WRITERS[opcode].__module__.rpartition('.')[2]}.py" if opcode in WRITERS else "expanded first"
        rows.setdefault(file, []).append(f"`{opcode}`")
    lines = ["| file | ops |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {file} | {', '.join(rows[file])} |" for file in sorted(rows))])


_FORMS = {
    kinds.INT: "integer", kinds.OPTIONAL_INT: "integer", kinds.BOOL: "boolean", kinds.STABILITY: "boolean",
    kinds.FLOAT: "number", kinds.STRING: "string", kinds.INT_LIST: "integers", kinds.OPTIONAL_INT_LIST: "integers",
    kinds.SINGLE: "integers", kinds.OPTIONAL_SINGLE: "integers", kinds.SLICE_RANGES: "slices",
    kinds.PADDING: "paddings", kinds.WINDOW: "window", kinds.OPTIONAL_WINDOW: "window", kinds.CONV_LABELS: "labels",
    kinds.OPTIONAL_CONV_LABELS: "labels", kinds.GROUPS: "groups", kinds.PAIRS: "lists", kinds.INT_LISTS: "lists",
    kinds.SHAPE: "shape", kinds.OPTIONAL_SHAPE: "shape", kinds.SHAPES: "shape-list", kinds.LITERAL: "shaped-literal",
    kinds.OPTIONAL_LITERAL: "shaped-literal", kinds.ALIASING: "aliasing", kinds.ACCURACY: "accuracy",
    kinds.SHARDING: "sharding", kinds.DOMAIN: "domain", kinds.PRECISION: "precisions",
}  # fmt: skip
"""Productions of docs/grammar.md by the kind of an attribute."""


def attribute_table() -> str:
    """The attributes of HLO text in the order of their names, with the production of their values and their ops."""
    rows: dict[tuple[str, str], list[str]] = {}
    for opcode in sorted(OPS):
        op = OPS[opcode]
        for attribute in op.attributes:
            if not attribute.hidden and attribute.kind not in (kinds.RESULT_SHAPE, kinds.LITERAL):
                choices = attribute.kind.choices
                form = ", ".join(f"`{choice}`" for choice in choices) if choices else _FORMS[attribute.kind]
                for name in (attribute.text, *attribute.also):
                    rows.setdefault((name, form), []).append(opcode)
        for role in op.roles:
            rows.setdefault((role, "name or body"), []).append(opcode)
        for role in op.list_roles:
            rows.setdefault((role, "names"), []).append(opcode)
    lines = ["| attribute | value | ops |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | {form} | {', '.join(ops)} |" for (name, form), ops in sorted(rows.items())]
    return "\n".join(lines)


def jax_functions() -> str:
    """The public functions of JAX that the tests compare with its CPU client, and those that hlokit refuses."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from tests.jax.functions.table import cases

    works = {case.name: case.module for case in cases().values() if not case.unsupported}
    refused = {case.name: case.reason for case in cases().values() if case.unsupported}
    counts = Counter(works.values())
    lines = [f"The tests compare {len(works)} functions in {len(counts)} public modules with JAX's CPU client:", ""]
    lines += [", ".join(f"`{module}` {count}" for module, count in sorted(counts.items())) + "."]
    lines += ["", "These do not work:" if refused else "All of them agree."]
    lines += ["", *(f"- `{name}`: {reason}" for name, reason in sorted(refused.items()))] if refused else []
    return "\n".join(lines)


def packages() -> list[Path]:
    """The folders of the package, outer ones first; beside each other by name."""
    return [path.parent for path in sorted(SOURCE.rglob("__init__.py"), key=lambda path: path.parent.parts)]


def says(path: Path) -> str:
    """The first sentence of a module's docstring; empty if it has none."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    sentence = re.match(r".*?[.?](?= [A-Z`]|\n|$)", text.partition("\n\n")[0].replace("\n", " "), re.DOTALL)
    return sentence[0] if sentence else ""


def package_table() -> str:
    """The packages, with what lives in each."""
    rows = [(path.relative_to(SOURCE).as_posix() + "/", says(path / "__init__.py")) for path in packages()[1:]]
    return "\n".join(["| folder | contents |", "| --- | --- |", *(f"| `{name}` | {text} |" for name, text in rows)])


def modules_page() -> str:
    """All modules, a table for each package."""
    lines = ["# Modules", "", "The first sentence of each module's docstring."]
    for package in packages():
        name = package.relative_to(SOURCE.parent).as_posix().replace("/", ".")
        lines += ["", f"## {name}", "", says(package / "__init__.py"), "", "| module | contents |", "| --- | --- |"]
        files = [path for path in sorted(package.glob("*.py")) if path.name != "__init__.py"]
        lines += [f"| `{path.name}` | {says(path)} |" for path in files]
    return "\n".join(lines) + "\n"


def with_table(page: str, table: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """The page with this between its marks."""
    (head, rest), (begin, end) = page.split(marks[0]), marks
    return f"{head}{begin}\n{table}\n{end}{rest.split(end)[1]}"


def main() -> None:
    names = ("ops", "stablehlo", "jax", "architecture", "grammar")
    ops, stablehlo, jax, architecture, grammar = (ROOT / f"docs/{name}.md" for name in names)
    pages = {
        ops: with_table(ops.read_text(), table()),
        stablehlo: with_table(with_table(stablehlo.read_text(), stablehlo_table()), written_table(), WRITTEN),
        jax: with_table(jax.read_text(), jax_functions()),
        architecture: with_table(architecture.read_text(), package_table()),
        grammar: with_table(grammar.read_text(), attribute_table()),
    }
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not up to date: run python -m docs.generate")
        sys.exit(bool(stale))
    for path in stale:
        path.write_text(pages[path])


if __name__ == "__main__":
    main()
