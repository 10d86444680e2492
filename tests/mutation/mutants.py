"""For each rule drawn (labels.py) the smallest edit of the code that breaks it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """In a file of src/hlokit, text that occurs once becomes another text."""

    file: str
    old: str
    new: str


MUTANTS = {
    "WHILE-6": Mutant(
        "ops/control_flow.py", "check(body.result.static is init.static,", "check(body.result.dtype is init.dtype,"
    ),
    "RBG-3": Mutant(
        "ops/random.py",
        "generate(initial_state, data",
        "generate(initial_state + np.random.default_rng().integers(1, 99, 1, np.uint64), data",
    ),
    "HLIT-5": Mutant("text/literals.py", "return 0, (1 << element_type.bits) - 1", "return 0, 1 << element_type.bits"),
    "DYN-3": Mutant("ops/movement.py", "dynamic[d] = dynamic[d] or (operand", "dynamic[d] = dynamic[d] and (operand"),
    "CONCAT-1": Mutant("ops/movement.py", "else sizes[d] + size\n", "else sizes[d] + sizes[d]\n"),
    "RNG-3": Mutant(
        "ops/random.py", 'check(shape.dtype.is_floating, "RNG-3"', 'check(not shape.dtype.is_integral, "RNG-3"'
    ),
    "CALL-4": Mutant(
        "ops/control_flow.py",
        "check(operand.static is parameter.static, shape_label",
        "check(operand.is_tuple or operand.static is parameter.static, shape_label",
    ),
    "RPREC-4": Mutant("ops/conversion.py", "check(self.mantissa_bits >= 0,", "check(self.mantissa_bits >= -1,"),
    "COMM-15": Mutant("hlo/protocol.py", "if len(kinds) > 1:", 'if len(kinds) > 1 and "send and recv" not in kinds:'),
    "CMP-6": Mutant("ops/comparison.py", '"pred": "UNSIGNED",', '"pred": "SIGNED",'),
    "HOP-17": Mutant(
        "ops/reduction.py",
        'dimensions: Dims = attr()\n\n    rounding = SUMMED\n    roles = ("to_apply",)\n    form = "fold"',
        'dimensions: Dims = attr(())\n\n    rounding = SUMMED\n    roles = ("to_apply",)\n    form = "fold"',
    ),
    "DYN-BCAST-3": Mutant("builder/broadcasting.py", "if n == 1 and not large.dynamic[d]:", "if n == 1:"),
    "SDS-6": Mutant("ops/dynamic.py", "if not 0 <= wanted <= bound:", "if not wanted <= bound:"),
    "MAP-9": Mutant(
        "ops/control_flow.py", "everything = tuple(range(first.rank))", "everything = tuple(range(max(1, first.rank)))"
    ),
    "HPRINT-8": Mutant("text/printer.py", "shown = operands[:4] if", "shown = operands[:5] if"),
    "CONV-22": Mutant(
        "ops/convolution.py",
        "lhs = lhs.reshape(groups, lhs.shape[0] // groups, *lhs.shape[1:])",
        "lhs = lhs.reshape(lhs.shape[0] // groups, groups, *lhs.shape[1:]).swapaxes(0, 1)",
    ),
    "HMOD-15": Mutant("text/parser.py", 'f"module_{entry.name}"', 'f"module_{self.computations[-1].name}"'),
    "BNI-1": Mutant(
        "ops/batch_norm.py",
        '"BNI-3")\n        return operand.logical',
        '"BNI-3")\n        return Shape.tuple([operand.logical])',
    ),
    "BEY-51": Mutant("builder/control.py", "in labels.items() if value is not None}", "in labels.items()}"),
    "CHOL-7": Mutant(
        "ops/linalg.py",
        "return factor.astype(a.dtype, copy=False)",
        "return np.where(factor == 0, a, factor).astype(a.dtype, copy=False)",
    ),
    "IOTA-5": Mutant(
        "ops/movement.py", 'check(0 <= along < shape.rank, "IOTA-5"', 'check(along < shape.rank, "IOTA-5"'
    ),
    "REDUCER-6": Mutant(
        "ops/reduction.py",
        "function.batched(*accumulators, *elements)",
        "function.batched(*elements, *accumulators)",
    ),
    "MAX-2": Mutant("ops/functions.py", "_with_zeros(less, x, y, -np.subtract(-x, y))", "_with_zeros(less, x, y, y)"),
    "HOP-28": Mutant(
        "ops/communication.py", 'infeed_config: str = attr("")', 'infeed_config: str = attr("", always=True)'
    ),
    "PAD-6": Mutant("ops/movement.py", "first = max(0, -(low // step))", "first = max(0, -low // step)"),
    "MAP-8": Mutant("builder/control.py", "if static_operands:", "if len(static_operands) > 1:"),
    "ARED-8": Mutant("ops/collectives.py", "for part in parts[1:]:", "for part in parts[2:]:"),
    "GATHER-32": Mutant("ops/gather.py", "axis = of_indices - (of_indices > index_vector_dim)", "axis = of_indices"),
    "LEX-11": Mutant(
        "text/lexer.py",
        "[0-9]++(?=[eE][+-]?[0-9]))(?:[eE][+-]?[0-9]++)?)",
        "[0-9]++(?=[eE]-?[0-9]))(?:[eE]-?[0-9]++)?)",
    ),
    "GATHER-12": Mutant("ops/gather.py", "check(self.slice_sizes[d] == 1,", "check(self.slice_sizes[d] <= 1,"),
    "RWIN-1": Mutant(
        "ops/windows.py",
        "results = [a.with_dimensions(sizes, a.dynamic) for a in arrays]",
        "results = [arrays[0].with_dimensions(sizes, a.dynamic) for a in arrays]",
    ),
    "TOKEN-4": Mutant("builder/communication.py", "check(token.shape.is_token,", "check(not token.shape.is_array,"),
    "BEY-53": Mutant(
        "builder/communication.py",
        "    for token in tokens:\n",
        '    check(bool(tokens), "BEY-53", "operands", 0, "at least one")\n    for token in tokens:\n',
    ),
    "ROUND-2": Mutant(
        "ops/functions.py",
        "return np.copysign(np.abs(whole) + step.astype(x.dtype), x)",
        "return np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x)",
    ),
    "BEY-33": Mutant(
        "ops/scatter.py",
        "(batching, self.scatter_indices_batching_dims), {*inserted, *places}",
        "(batching, self.scatter_indices_batching_dims), {*places}",
    ),
    "WHILE-8": Mutant(
        "ops/control_flow.py",
        "            state = body(state)\n",
        "            body(state)\n            state = body(state)\n",
    ),
    "HOP-3": Mutant("ops/control_flow.py", 'name="add-dependency"', 'name="add-dependent"'),
    "SIGN-4": Mutant("ops/elementwise.py", '"SIGN", SIGNED, "SIGN-4"', '"SIGN", ARITHMETIC, "SIGN-4"'),
    "SCATTER-31": Mutant("ops/scatter.py", "for turn in _turns(targets):", "for turn in [np.arange(len(targets))]:"),
    "SIGN-2": Mutant(
        "ops/functions.py",
        "np.where(x == 0, x, np.sign(x))",
        'np.where(x == 0, x, np.sign(x) if x.dtype.kind == "f" else x)',
    ),
    "RBG-13": Mutant("ops/counter_random.py", "k1 = (k1 + _PHILOX_KEY_STEPS[1])", "k1 = (k1 + _PHILOX_KEY_STEPS[0])"),
    "HCOMP-9": Mutant("text/printer.py", 'text = "}" if thread == MAIN_THREAD else', 'text = "}" if not thread else'),
    "REM-1": Mutant("ops/functions.py", "rest = np.fmod(x,", "rest = np.mod(x,"),
    "NEG-3": Mutant("ops/elementwise.py", '"NEG", ARITHMETIC, "NEG-3"', '"NEG", ANY, "NEG-3"'),
    "A2A-6": Mutant("ops/exchanges.py", 'check(operand.is_array, "A2A-6"', 'check(True, "A2A-6"'),
    "BEY-23": Mutant("ops/reshaping.py", "dynamic[inferred_dimension] = True", "dynamic[candidates[0]] = True"),
    "WHILE-1": Mutant(
        "ops/control_flow.py",
        '"WHILE-6", "body result", body.result, init)\n        return init',
        '"WHILE-6", "body result", body.result, init)\n        return body.result',
    ),
    "HOP-14": Mutant(
        "ops/scatter.py",
        '    update_window_dims: Dims = attr(proto="scatter_dimension_numbers.update_window_dims")\n'
        '    inserted_window_dims: Dims = attr(proto="scatter_dimension_numbers.inserted_window_dims")\n',
        '    inserted_window_dims: Dims = attr(proto="scatter_dimension_numbers.inserted_window_dims")\n'
        '    update_window_dims: Dims = attr(proto="scatter_dimension_numbers.update_window_dims")\n',
    ),
    "DUS-10": Mutant("ops/slicing.py", "min(int(start), bound - size))", "min(int(start), bound - size - 1))"),
    "CONV-TYPE-3": Mutant(
        "ops/conversion.py",
        "return convert(operand, self.output_shape.dtype.numpy)",
        "return operand.view(self.output_shape.dtype.numpy)",
    ),
}
"""In the order of the draw."""
