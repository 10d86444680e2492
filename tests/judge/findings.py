"""Faults of XLA's as reports ready to file: python -m tests.judge.findings --newest PYTHON writes docs/findings.

Each is a program of a few instructions that jaxlib 0.10.2's CPU client crashes on, refuses, or computes otherwise than the
rules of the language say. A folder for each has program.hlo, arguments.npz and report.md; findings.json has the verdicts.
`hlokit fuzz --rerun --folder docs/findings --engines jaxlib` runs them all again.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.files.arrays import npz_of
from hlokit.judge.compare.comparing import Comparison, Judgement, compare_engines, kind_of
from hlokit.judge.compare.report import ARGUMENTS, PROGRAM, REPORT, markdown
from hlokit.judge.engines.engine import Engine, engine_of
from hlokit.rules import rules

FOLDER = Path(__file__).parents[2] / "docs/findings"
INF = float("inf")
_SECONDS = 60.0
_ADD = "f { a = TYPE[] parameter(0) b = TYPE[] parameter(1) ROOT c = TYPE[] add(a, b) }\n"
_GE = "g { a = TYPE[] parameter(0) b = TYPE[] parameter(1) ROOT c = pred[] compare(a, b), direction=GE }\n"
_ADD_TWO = (
    "f { a = f32[] parameter(0) b = f16[] parameter(1) c = f32[] parameter(2) d = f16[] parameter(3) "
    "s = f32[] add(a, c) t = f16[] add(b, d) ROOT r = (f32[], f16[]) tuple(s, t) }\n"
)
_TAKE_TWO = (
    "f { a = s32[] parameter(0) b = s32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3) "
    "ROOT r = (s32[], s32[]) tuple(c, d) }\n"
)
_PLACES = "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"


@dataclass(frozen=True)
class Finding:
    """A program that shows a fault. `lines`: the instructions of its entry; `called`: the computations before it."""

    name: str
    title: str
    rules: str
    lines: str
    arguments: list[Any] = field(default_factory=list[Any])
    called: str = ""

    @property
    def module(self) -> hk.HloModule:
        name = self.name.replace("-", "_")
        return hk.parse(f"HloModule {name}\n{self.called}ENTRY e {{\n{self.lines}\n}}")

    def given(self) -> list[Any]:
        """The arguments as arrays."""
        parameters = self.module.entry.parameters
        return [np.asarray(a).astype(p.shape.dtype.numpy) for a, p in zip(self.arguments, parameters, strict=True)]


def _unary(element: str, count: int, opcode: str, result: str = "") -> str:
    return f"x = {element}[{count}] parameter(0)\nROOT r = {result or element}[{count}] {opcode}(x)"


def _binary(element: str, count: int, opcode: str) -> str:
    return (
        f"x = {element}[{count}] parameter(0)\ny = {element}[{count}] parameter(1)\n"
        f"ROOT r = {element}[{count}] {opcode}(x, y)"
    )


FINDINGS = (
    Finding(
        "convert_complex_to_pred", "convert of a complex array to pred ends the process", "CONV-TYPE-8 CONV-TYPE-9",
        _unary("c64", 1, "convert", "pred"), [[1 + 1j]],
    ),
    Finding(
        "select_and_scatter_of_scalars", "select-and-scatter of scalars ends the process", "SAS-6 SAS-7",
        "x = s32[] parameter(0)\ns = s32[] parameter(1)\ni = s32[] parameter(2)\n"
        "ROOT r = s32[] select-and-scatter(x, s, i), select=g, scatter=f", [1, 2, 3],
        (_GE + _ADD).replace("TYPE", "s32"),
    ),
    Finding(
        "complex_inverse_hyperbolic_tangent", "atanh of a complex iota ends the process", "BEY-6",
        "x = c64[3] iota(), iota_dimension=0\nROOT r = c64[3] atanh(x)",
    ),
    Finding(
        "complex_hyperbolic_cosine", "cosh of a complex value in a fusion ends the process", "BEY-6",
        "x = c128[] parameter(0)\nt = c128[] tan(x)\nROOT r = c128[] cosh(t)", [0.5 + 0.25j],
    ),
    Finding(
        "rng_of_pred", "rng of pred ends the process", "RNG-4",
        "a = pred[] constant(false)\nb = pred[] constant(true)\n"
        "ROOT r = pred[4] rng(a, b), distribution=rng_uniform",
    ),
    Finding(
        "rng_of_s8", "rng of s8 ends the process", "RNG-4",
        "a = s8[] constant(0)\nb = s8[] constant(9)\nROOT r = s8[4] rng(a, b), distribution=rng_uniform",
    ),
    Finding(
        "select_and_scatter_of_constant_scalars", "select-and-scatter of constant scalars loses its source", "SAS-7 SAS-8",
        "x = f32[] constant(1)\ns = f32[] constant(2)\ni = f32[] constant(3)\n"
        "ROOT r = f32[] select-and-scatter(x, s, i), select=g, scatter=f", [],
        "g { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] constant(false) }\n"
        "f { a = f32[] parameter(0) ROOT b = f32[] parameter(1) }\n",
    ),
    Finding(
        "select_and_scatter_with_shifted_padding",
        "select-and-scatter with padding -1_1 picks another of equal elements than the first", "SAS-8 SAS-9",
        "x = s32[2,4] parameter(0)\ns = s32[1,2] parameter(1)\ni = s32[] constant(0)\n"
        "ROOT r = s32[2,4] select-and-scatter(x, s, i), window={size=2x2 stride=1x2 pad=0_0x-1_1}, select=g, scatter=f",
        [[[0, 0, 5, 0], [0, 5, 0, 0]], [[7, 8]]], (_GE + _ADD).replace("TYPE", "s32"),
    ),
    Finding(
        "scatter_of_empty_index_vectors", "scatter with index vectors of size 0 fails in scatter_simplifier",
        "SCATTER-16 SCATTER-18",
        "x = u32[] parameter(0)\ni = s32[2,0] constant({{},{}})\nu = u32[2] parameter(1)\n"
        "ROOT r = u32[] scatter(x, i, u), update_window_dims={}, inserted_window_dims={}, "
        "scatter_dims_to_operand_dims={}, index_vector_dim=1, to_apply=f", [3, [2, 3]], _ADD.replace("TYPE", "u32"),
    ),
    Finding(
        "scatter_of_updates_without_indices", "scatter with index vectors of size 0 into an array loses updates",
        "SCATTER-16 SCATTER-18",
        "x = s32[1] parameter(0)\ni = s32[2,0] constant({{},{}})\nu = s32[2] parameter(1)\n"
        "ROOT r = s32[1] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={}, index_vector_dim=1, to_apply=f", [[-3], [5, 3]], _ADD.replace("TYPE", "s32"),
    ),
    Finding(
        "reduce_of_two_float_types", "reduce of operands of two floating types is refused as mixed precision",
        "REDUCE-1 REDUCE-3",
        "x = f32[3] parameter(0)\ny = f16[3] parameter(1)\nz = f32[] constant(0)\nw = f16[] constant(0)\n"
        "ROOT r = (f32[], f16[]) reduce(x, y, z, w), dimensions={0}, to_apply=f", [[1, 2, 3], [1, 2, 3]], _ADD_TWO,
    ),
    Finding(
        "scatter_of_two_float_types", "scatter of operands of two floating types is refused as mixed precision",
        "SCATTER-4",
        "x = f32[3] parameter(0)\ny = f16[3] parameter(1)\ni = s32[1,1] constant({{1}})\nu = f32[1] parameter(2)\n"
        f"v = f16[1] parameter(3)\nROOT r = (f32[3], f16[3]) scatter(x, y, i, u, v), {_PLACES}, to_apply=f",
        [[1, 2, 3], [1, 2, 3], [5], [6]], _ADD_TWO,
    ),
    Finding(
        "map_of_two_float_types", "map of operands of two floating types is refused as mixed precision", "MAP-4 MAP-7",
        "x = f32[3] parameter(0)\ny = f16[3] parameter(1)\nROOT r = f32[3] map(x, y), dimensions={0}, to_apply=g",
        [[3, 2, 1], [1, 2, 3]],
        "g { a = f32[] parameter(0) k = f16[] parameter(1) c = f32[] convert(k) ROOT r = f32[] add(a, c) }\n",
    ),
    Finding(
        "bitcast_to_another_rank", "bitcast to another rank cannot be converted to StableHLO", "BEY-19",
        "x = s32[2,3] parameter(0)\nROOT r = s32[6] bitcast(x)", [[[1, 2, 3], [4, 5, 6]]],
    ),
    Finding(
        "power_of_large_exponents", "integer power with an exponent of 31 bits gives a wrong number", "BEY-9",
        _binary("s32", 2, "power"), [[3, 3], [2**31 - 1, 21]],
    ),
    Finding(
        "power_of_unsigned_exponents", "power of u8 treats exponents of 128 and more as negative", "BEY-9",
        _binary("u8", 2, "power"), [[3, 3], [200, 5]],
    ),
    Finding(
        "power_of_constants", "a constant -1 to the power of a constant -1 is folded to 0", "BEY-9",
        "c = s32[1,2] constant({{-1,6}})\nROOT r = s32[1,2] power(c, c)",
    ),
    Finding(
        "reduce_precision_without_mantissa", "reduce-precision to 0 mantissa bits rounds ties down", "RPREC-9",
        "x = f32[3] parameter(0)\nROOT r = f32[3] reduce-precision(x), exponent_bits=8, mantissa_bits=0",
        [[1.5, 3, -3]],
    ),
    Finding(
        "mask_times_infinity", "infinity times a converted pred is zero", "BIN-6",
        "p = pred[2] parameter(0)\nx = f32[2] parameter(1)\nc = f32[2] convert(p)\nROOT r = f32[2] multiply(c, x)",
        [[False, True], [INF, 2]],
    ),
    Finding(
        "product_of_exponentials", "exp(x) * exp(y) is computed as exp(x + y): finite where a factor is infinite",
        "EXP-1 BIN-6",
        "x = f32[1] parameter(0)\ny = f32[1] parameter(1)\na = f32[1] exponential(x)\nb = f32[1] exponential(y)\n"
        "ROOT r = f32[1] multiply(a, b)", [[200], [-200]],
    ),
    Finding(
        "quotient_of_exponentials", "exp(x) / exp(x) is 1 where both are infinite and the quotient is NaN", "EXP-1 DIV-1",
        "x = f32[1] parameter(0)\na = f32[1] exponential(x)\nROOT r = f32[1] divide(a, a)", [[100]],
    ),
    Finding(
        "quotient_of_a_quotient", "(x / y) / z is computed as x / (y * z), which overflows", "DIV-1",
        "x = f32[1] parameter(0)\ny = f32[1] parameter(1)\nz = f32[1] parameter(2)\nw = f32[1] divide(x, y)\n"
        "ROOT r = f32[1] divide(w, z)", [[1e30], [1e30], [1e30]],
    ),
    Finding(
        "quotient_by_a_denormal", "a quotient with a denormal constant as divisor is infinite", "DIV-1",
        "x = f32[1] parameter(0)\nz = f32[1] constant({1e-40})\nROOT r = f32[1] divide(x, z)", [[1e-5]],
    ),
    Finding(
        "complex_sine_of_small_numbers", "the imaginary part of the sine of a small complex number is lost", "UN-7",
        _unary("c64", 1, "sine"), [[1e-10 + 1e-10j]],
    ),
    Finding(
        "complex_cosine_near_the_greatest", "the cosine of a complex number overflows although its result is finite", "UN-7",
        _unary("c64", 1, "cosine"), [[1 + 90j]],
    ),
    Finding(
        "complex_square_root_of_denormals", "the square root of a complex number with denormal parts is zero", "UN-7",
        _unary("c64", 1, "sqrt"), [[1e-38 + 1e-38j]],
    ),
    Finding(
        "complex_sign_of_denormals", "sign of a complex number with denormal parts is the number itself", "SIGN-3",
        _unary("c64", 1, "sign"), [[1e-38 + 1e-38j]],
    ),
    Finding(
        "scatter_with_u8_indices", "scatter with u8 indices into 300 elements skips an update that is within bounds", "SCATTER-16 SCATTER-20",
        "x = s32[300] parameter(0)\ni = u8[1,1] parameter(1)\nu = s32[1] parameter(2)\n"
        f"ROOT r = s32[300] scatter(x, i, u), {_PLACES}, to_apply=f", [[0] * 300, [[200]], [5]],
        _ADD.replace("TYPE", "s32"),
    ),
    Finding(
        "popcnt_of_s4", "popcnt of a negative s4 counts bits beyond its width", "POPCNT-1", _unary("s4", 2, "popcnt"),
        [[7, -8]],
    ),
    Finding(
        "quotient_of_constants_by_zero", "a quotient of integer constants by zero ends the process", "DIV-3",
        "c = s32[] constant(1)\nd = s32[] constant(0)\nROOT r = s32[] divide(c, d)",
    ),
    Finding(
        "loop_with_a_step_beyond_its_bound", "a loop that steps over its bound in its first iteration does not run", "WHILE-2",
        "z = s32[] constant(0)\nx = f32[1] parameter(0)\nt = (s32[], f32[1]) tuple(z, x)\n"
        "ROOT w = (s32[], f32[1]) while(t), condition=c, body=b", [[3]],
        "b { t = (s32[], f32[1]) parameter(0) i = s32[] get-tuple-element(t), index=0 two = s32[] constant(2) "
        "n = s32[] add(i, two) v = f32[1] get-tuple-element(t), index=1 w = f32[1] add(v, v) "
        "ROOT r = (s32[], f32[1]) tuple(n, w) }\n"
        "c { t = (s32[], f32[1]) parameter(0) i = s32[] get-tuple-element(t), index=0 one = s32[] constant(1) "
        "ROOT r = pred[] compare(i, one), direction=LT }\n",
    ),
    Finding(
        "scatter_of_the_same_operand_twice", "scatter of one operand twice and of another operand returns one result instead of another",
        "SCATTER-16",
        "x = s32[1] parameter(0)\ny = u32[1] constant({7})\ni = s32[2,1] parameter(1)\nu = s32[2] parameter(2)\n"
        f"v = u32[2] parameter(3)\nROOT r = (s32[1], s32[1], u32[1]) scatter(x, x, y, i, u, u, v), {_PLACES}, to_apply=f",
        [[-2], [[0], [0]], [4, 1], [5, 5]],
        "f { a = s32[] parameter(0) b = s32[] parameter(1) c = u32[] parameter(2) d = s32[] parameter(3) "
        "e = s32[] parameter(4) g = u32[] parameter(5) ROOT r = (s32[], s32[], u32[]) tuple(a, b, c) }\n",
    ),
    Finding(
        "convolution_of_integer_constants", "a convolution of integer constants saturates when it is folded", "CONV-29",
        "x = s32[1,2] constant({{-2,-2147483648}})\ny = s32[2,1] constant({{1},{1}})\n"
        "ROOT r = s32[1,1] convolution(x, y), dim_labels=bf_io->bf",
    ),
    Finding(
        "maximum_of_a_clamp", "the maximum of a clamp and its lower bound is replaced by the clamp", "CLAMP-2 CLAMP-6",
        "x = s8[1] parameter(0)\ny = s8[1] parameter(1)\nz = s8[1] parameter(2)\nc = s8[1] clamp(x, y, z)\n"
        "ROOT r = s8[1] maximum(x, c)", [[6], [2], [0]],
    ),
    Finding(
        "reduce_with_an_unused_result", "a reduce of two types fails if its second result is not used", "REDUCE-3 REDUCE-8",
        "x = f32[1] parameter(0)\ny = c64[1] constant({(5,2)})\nz = f32[] parameter(1)\nw = c64[] parameter(2)\n"
        "q = (f32[], c64[]) reduce(x, y, z, w), dimensions={0}, to_apply=f\n"
        "ROOT r = f32[] get-tuple-element(q), index=0", [[3], 2, 1j],
        "f { a = f32[] parameter(0) b = c64[] parameter(1) c = f32[] parameter(2) d = c64[] parameter(3) "
        "e = f32[] convert(d) ROOT r = (f32[], c64[]) tuple(e, b) }\n",
    ),
    Finding(
        "convolution_beyond_its_input", "a convolution with padding -1_1 reads beyond its input", "CONV-6",
        "x = bf16[16,3,1] parameter(0)\ny = bf16[1,1,16] parameter(1)\n"
        "ROOT r = f32[1,1,3] convolution(x, y), window={size=1 pad=-1_1}, dim_labels=f0b_0oi->fb0",
        [np.ones((16, 3, 1)), np.full((1, 1, 16), 2)],
    ),
    Finding(
        "dynamic_update_slice_with_s8_indices", "dynamic-update-slice clamps an s8 index to a bound that s8 cannot hold",
        "DUS-2 DSLICE-4",
        "x = f32[300] parameter(0)\nu = f32[10] parameter(1)\ni = s8[] parameter(2)\n"
        "ROOT r = f32[300] dynamic-update-slice(x, u, i)", [np.zeros(300), np.ones(10), 100],
    ),
    Finding(
        "maximum_of_many_numbers", "the maximum of 4,096 numbers with a NaN is another number", "REDUCE-8 MAX-1",
        "x = f32[4096] parameter(0)\ni = f32[] constant(-inf)\n"
        "ROOT r = f32[] reduce(x, i), dimensions={0}, to_apply=m", [[float("nan")] + [1] * 4095],
        "m { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }\n",
    ),
    Finding(
        "total_order_of_constant_nans", "a constant NaN is not equal to itself in the total order", "CMP-5",
        "x = f32[2] constant({nan,1})\nROOT r = pred[2] compare(x, x), direction=EQ, type=TOTALORDER",
    ),
    Finding(
        "sum_with_two_constants", "(x + c) + d with constants c and d is computed as x + (c + d)", "BIN-6",
        "x = f32[1] parameter(0)\nc = f32[1] constant({1e30})\nd = f32[1] constant({1})\ns = f32[1] add(x, c)\n"
        "ROOT r = f32[1] add(s, d)", [[-1e30]],
    ),
    Finding(
        "convert_of_a_bf16_sum", "a sum in bf16 that is converted to f32 is not rounded to bf16", "TYPE-10",
        "x = bf16[1] parameter(0)\ny = bf16[1] parameter(1)\ns = bf16[1] add(x, y)\nROOT r = f32[1] convert(s)",
        [[-3], [0.04]],
    ),
    Finding(
        "scatter_of_one_operand_with_two_updates", "scatter of one operand twice returns the first result twice",
        "SCATTER-18",
        "x = s32[3] parameter(0)\ni = s32[2,1] parameter(1)\nu = s32[2] parameter(2)\nv = s32[2] parameter(3)\n"
        f"ROOT r = (s32[3], s32[3]) scatter(x, x, i, u, v), {_PLACES}, to_apply=f",
        [[1, 2, 3], [[0], [1]], [10, 20], [30, 40]], _TAKE_TWO,
    ),
    Finding(
        "scatter_of_windows_of_the_same_operand", "scatter of windows of one operand twice, with the same updates, loses a window",
        "SCATTER-16 SCATTER-18",
        "x = s32[4] parameter(0)\ni = s32[2,1] parameter(1)\nu = s32[2,2] parameter(2)\n"
        "ROOT r = (s32[4], s32[4]) scatter(x, x, i, u, u), update_window_dims={0}, inserted_window_dims={}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f",
        [[0] * 4, [[0], [2]], [[7, 8], [9, 10]]], _TAKE_TWO,
    ),
    Finding(
        "select_and_scatter_without_windows", "select-and-scatter whose padding cuts off more than there is ends the process", "SAS-7 WIN-4",
        "x = f32[1] parameter(0)\ns = f32[0] parameter(1)\ni = f32[] constant(0)\n"
        "ROOT r = f32[1] select-and-scatter(x, s, i), window={size=1 pad=-1_-1}, select=g, scatter=f", [[1], []],
        (_GE + _ADD).replace("TYPE", "f32"),
    ),
    Finding(
        "scatter_that_keeps_a_result", "scatter of one operand twice that keeps its first value loses the second, or is not compiled",
        "SCATTER-16 SCATTER-18",
        "x = s32[1,2] parameter(0)\ni = s8[2,1] constant({{0},{0}})\nu = s32[2,1,1] parameter(1)\n"
        "ROOT r = (s32[1,2], s32[1,2]) scatter(x, x, i, u, u), update_window_dims={1}, inserted_window_dims={1}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=2, to_apply=f",
        [[[1, 0]], [[[2]], [[4]]]],
        "f { a = s32[] parameter(0) b = s32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3) "
        "e = s32[] xor(b, d) ROOT r = (s32[], s32[]) tuple(a, e) }\n",
    ),
    Finding(
        "bitcast_of_one_element_to_a_scalar", "bitcast of one element to a scalar of another type has no layout", "BEY-19",
        "x = s32[] parameter(0)\ny = s32[1] reshape(x)\nROOT r = f32[] bitcast(y)", [1065353216],
    ),
)  # fmt: skip


def judged(finding: Finding, engine: Engine) -> tuple[Comparison, Judgement]:
    """The comparison of the reference with an engine, with the rules of the finding."""
    found = compare_engines(finding.module, finding.given(), [engine], bisect=False)
    judgement = replace(found.judgements[0], rules=tuple(finding.rules.split()))
    if judgement.verdict == "undecided":  # the rules settle it: the program is the one instruction that is wrong
        judgement = replace(judgement, verdict="wrong")
    return replace(found, judgements=(judgement,)), judgement


def write(finding: Finding, engine: Engine, newest: Engine, version: str) -> dict[str, Any]:
    """Writes the folder of a finding; gives its entry in findings.json."""
    comparison, judgement = judged(finding, engine)
    if not judgement.is_finding:
        raise SystemExit(f"{finding.name}: {judgement}")
    _, other = judged(finding, newest)
    folder = FOLDER / finding.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PROGRAM).write_text(finding.module.to_text("short_parsable"), encoding="utf-8")
    (folder / ARGUMENTS).write_bytes(npz_of(tuple(finding.given()), "in"))
    rest = markdown(comparison, engine).partition("\n")[2]
    first = f"{other.message.partition(chr(10))[0]}" if other.is_finding else "equal to the reference"
    also = f"\n## Another version\n\njaxlib {version}: {other.verdict}: {first}.\n"
    (folder / REPORT).write_text(f"# XLA:CPU: {finding.title}\n{rest}{also}", encoding="utf-8")
    return {
        "name": finding.name, "title": finding.title, "rules": finding.rules.split(), "verdict": judgement.verdict,
        "message": kind_of(judgement.message), "newest": other.verdict,
    }  # fmt: skip


def index(entries: list[dict[str, Any]], old: str, new: str) -> str:
    """The page that lists the findings."""
    lines = [
        "# Faults found in XLA",
        "",
        "These are small programs that XLA's CPU backend crashes on, refuses, or computes with a result that breaks the rules of the",
        "language. They were found with [random programs and comparisons](../howto/compare_engines.md). Each page is a report with the",
        "program, its arguments, the values, the rules, the versions, and the command that reproduces the fault. To reproduce all of them:",
        "",
        "```sh",
        "hlokit fuzz --rerun --folder docs/findings --engines jaxlib",
        "```",
        "",
        f"| finding | jaxlib {old} | jaxlib {new} | rules |",
        "| --- | --- | --- | --- |",
    ]
    for e in entries:
        labels = ", ".join(f"{label}" for label in e["rules"] if label in rules())
        lines.append(f"| [{e['title']}]({e['name']}/report.md) | {e['verdict']} | {e['newest']} | {labels} |")
    lines += ["", "```{toctree}", ":hidden:", ":glob:", "", "*/report", "```", ""]
    return "\n".join(lines)


def main() -> None:
    """Writes docs/findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.judge.findings", description=__doc__)
    parser.add_argument("--newest", required=True, metavar="PYTHON", help="a Python with the newest jaxlib")
    parser.add_argument("--newest-version", required=True, metavar="VERSION")
    options = parser.parse_args()
    old, new = metadata.version("jaxlib"), options.newest_version
    with engine_of("jaxlib", _SECONDS) as engine, engine_of(f"jaxlib@{options.newest}", _SECONDS) as newest:
        entries = [write(finding, engine, newest, new) for finding in FINDINGS]
    record = {"jaxlib": old, "newest": new, "findings": entries}
    (FOLDER / "findings.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (FOLDER / "index.md").write_text(index(entries, old, new), encoding="utf-8")
    print(f"{len(entries)} findings")


if __name__ == "__main__":
    main()
