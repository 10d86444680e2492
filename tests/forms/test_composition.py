"""Forms of several ops in one expression: what one op does to an index another undoes, and no run-time division is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hlokit.forms.affine import Affine, Index
from hlokit.forms.emitter import Value
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from tests.forms.evaluator import Element, NumpyEmitter, Operand, grid
from tests.forms.expanding import expanded
from tests.forms.programs import program


class CountingEmitter(NumpyEmitter):
    """Counts what had to be left for run time."""

    def __init__(self) -> None:
        super().__init__()
        self.quotients = self.comparisons = 0

    def quotient(self, affine: Affine, divisor: int) -> Affine:
        self.quotients += 1
        return super().quotient(affine, divisor)

    def compare_range(self, affine: Affine, low: int, high: int) -> Value:
        self.comparisons += 1
        return super().compare_range(affine, low, high)


@dataclass
class Inlined:
    """Reads an instruction by its form and its operands by theirs, down to parameters."""

    emit: CountingEmitter
    instruction: Instruction
    arrays: list[Any]

    @property
    def shape(self) -> Any:
        return self.instruction.shape

    def __call__(self, index: Index) -> Value:
        op: Any = self.instruction.op
        if op.opcode == "parameter":
            return Operand(self.emit, self.shape, self.arrays[op.number])(index)
        readers = [Inlined(self.emit, o, self.arrays) for o in self.instruction.operands]
        return op.element(self.emit, index, *readers)


def inline(module: HloModule, root: Instruction, *arrays: Any) -> tuple[CountingEmitter, Any]:
    emit = CountingEmitter()
    emit.mask = np.ones(root.shape.dimensions, bool)
    value: Any = Inlined(emit, root, list(arrays))(grid(root.shape.dimensions))
    assert isinstance(value, Element)
    return emit, np.broadcast_to(value.data, root.shape.dimensions)


def test_pad_of_slice_and_reshape_of_reshape() -> None:
    import hlokit as hk

    module = hk.parse("""HloModule m

ENTRY e {
  a = f32[4,6] parameter(0)
  zero = f32[] constant(0)
  b = f32[24] reshape(a)
  c = f32[4,6] reshape(b)
  d = f32[4,4] slice(c), slice={[0:4], [1:5]}
  e = f32[6,4] pad(d, zero), padding=1_1x0_0
  f = f32[4,4] slice(e), slice={[1:5], [0:4]}
  g = f32[4,4] transpose(f), dimensions={1,0}
  h = f32[4,4] reverse(g), dimensions={0}
  ROOT i = f32[4,4] transpose(h), dimensions={1,0}
}
""")
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    emit, value = inline(module, module.entry.root, a)
    assert (emit.quotients, emit.comparisons) == (0, 0)
    assert np.array_equal(value, a[:, 1:5][:, ::-1])


@pytest.mark.parametrize(
    "size, stride, operand, source",
    [(20, 1, "f32[24]", "f32[5]"), (40, 2, "f32[44]", "f32[3]")],
)
def test_windows_over_an_element_are_found_again(size: int, stride: int, operand: str, source: str) -> None:
    """select-and-scatter reads its sources at element + offset: the rows of broadcast, pad and reshape leave no trace."""
    attributes = f"window={{size={size} stride={stride}}},select=greater,scatter=add"
    module = program(operand, "select-and-scatter", f"{operand} {source} f32[]", attributes)
    root = module.entry.root
    written = expanded(root.op, [o.shape for o in root.operands], dict(root.called_by_role()))
    (fold,) = [i for i in written.entry.instructions if i.opcode == "reduce"]
    values = np.arange(1, root.operands[1].shape.size + 1, dtype=np.float32)
    emit, read = inline(written, fold.operands[0], None, values, None)
    assert emit.quotients == (stride > 1), "the stride alone divides"
    spread = np.zeros(stride * (len(values) - 1) + 2 * size - 1, np.float32)
    spread[size - 1 : 1 - size : stride] = values
    assert np.array_equal(read, np.lib.stride_tricks.sliding_window_view(spread, read.shape[1]))
