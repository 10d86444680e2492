"""Loads of every n-th element by whole vectors and shuffles, of bytes to be widened, and of rows to be transposed."""

from __future__ import annotations

from hlokit.cpu.emit.addresses import Addresses
from hlokit.cpu.emit.scope import Scope, is_static, lanes_of
from hlokit.cpu.llvm import I32, LaneMask, Pointer, Value, joined
from hlokit.cpu.loops import tiles
from hlokit.cpu.loops.expr import Buffer, Node
from hlokit.cpu.loops.nest import runtime_deps
from hlokit.forms.affine import Affine
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

_BYTES = 64
"""Size of a register that a permutation of bytes goes through."""


class StridedLoads:
    """Writes loads whose lanes lie some elements apart. Where several read the same vectors these are loaded once."""

    def __init__(self, addresses: Addresses) -> None:
        self.addresses = addresses
        self.loops = addresses.loops

    def load(self, buffer: Buffer, affine: Affine, lane: int, scope: Scope) -> Value | None:
        """Every 2nd to 8th element; what may lie outside the buffer is masked. None where that does not do."""
        lanes, stride = scope.lanes, abs(lane)
        if runtime_deps(affine) & scope.lane_axis.bit:  # type: ignore[union-attr]
            return None
        shares, offset = self._among_groups(buffer, affine, stride, scope)
        count = lanes_of(scope)
        needed = count * stride if shares else (count - 1) * stride + 1
        if scope.mask is None and not shares and affine.high + stride <= buffer.size:
            needed = lanes * stride
        if lane < 0 and needed < lanes * stride:
            return None
        start = affine - offset if lane > 0 else affine - offset - (lanes - 1) * stride
        pointer = self.addresses.address(buffer, start, scope).pointer
        total = lanes * stride
        key = ("strided", pointer.text, stride, needed)
        loaded: Value | None = scope.memo.get(key)
        with scope.region as fn:
            if loaded is None:
                mask = None if needed == total else LaneMask(fn, needed, total)
                loaded = scope.memo[key] = pointer.load(total, mask)
            places = range(offset, offset + total, stride)
            return loaded.shuffled(places if lane > 0 else places[::-1])

    def _among_groups(self, buffer: Buffer, affine: Affine, stride: int, scope: Scope) -> tuple[bool, int]:
        """Whether groups of `stride` elements are read whole, by other loads too; the place in its group, else 0."""
        shares = not any(c % stride for _, c in affine.terms) and buffer.size % stride == 0
        return shares, (affine.constant + self.addresses.shifted(affine, scope)) % stride if shares else 0

    # -- bytes

    def widened_bytes(self, load: Node, scope: Scope) -> Value | None:
        """Every 2nd to 4th byte as 32 bits: one permutation of 64 bytes makes 16 lanes, where the machine has it."""
        buffer, affine = load.data[:2]
        stride = affine.coefficient(scope.lane_axis) if scope.lane_axis is not None else 0
        lanes = scope.lanes
        if not 2 <= stride <= 4 or lanes % 16 or load.args or not scope.region.fn.target.has("avx512bw"):
            return None
        if load.dtype not in (dtypes.u8, dtypes.s8) or not is_static(scope.mask):
            return None
        if self.loops.tile is not None or runtime_deps(affine) & scope.lane_axis.bit:  # type: ignore[union-attr]
            return None
        shares, offset = self._among_groups(buffer, affine, stride, scope)
        pointer = self.addresses.address(buffer, affine - offset, scope).pointer
        parts: list[Value] = []
        with scope.region as fn:
            for first in range(0, lanes, 16):
                here = min(16, lanes_of(scope) - first)
                if here <= 0:
                    parts.append(fn.poison(I32.of(16)))
                    continue
                needed = here * stride if shares else (here - 1) * stride + 1
                loaded = self._bytes(pointer, first * stride, needed, scope)
                parts.append(_spread_bytes(loaded, offset, stride, load.dtype))
            return joined(parts)

    def _bytes(self, pointer: Pointer, at: int, needed: int, scope: Scope) -> Value:
        """The needed bytes from `at` on, in a register."""
        key = ("bytes", pointer.text, at, needed)
        loaded = scope.memo.get(key)
        if loaded is None:
            mask = LaneMask(pointer.fn, needed, _BYTES)
            loaded = scope.memo[key] = (pointer + at).load(_BYTES, mask, "poison")
        return loaded

    # -- tiles

    def transposed(self, buffer: Buffer, affine: Affine, scope: Scope) -> Value:
        """A load of which rows are read, for all steps of the tile that lie in them."""
        tile, axis = self.loops.tile, scope.lane_axis
        assert tile is not None
        assert axis is not None
        outer = scope.of_axis(tile)
        step, size = affine.coefficient(tile), buffer.dtype.numpy.itemsize
        offset = affine.constant % step
        if any(c % step for _, c in affine.terms):
            offset = 0
        column = self.addresses.shifted(affine, scope) + offset
        width = tiles.piece(size)
        start = affine - offset + column // width * width
        key = ("transposed", buffer, start)
        found = outer.memo.get(key)
        if found is None:
            valid = outer.columns * step - column // width * width
            if offset == 0 and (buffer.size % step or any(c % step for _, c in affine.terms)):
                valid -= step - 1  # the last pair may lie half outside
            pointer = self.addresses.address(buffer, start, outer).pointer
            distance = affine.coefficient(axis)
            with outer.region:
                found = outer.memo[key] = _columns(pointer, distance, scope.lanes, lanes_of(scope), valid)
        return found[column % width]


def _spread_bytes(loaded: Value, offset: int, stride: int, dtype: DType) -> Value:
    """16 lanes of 32 bits: of the loaded bytes those at offset, offset + stride and so on."""
    if stride == 4:
        value = loaded.bitcast(I32.of(16))
        if offset < 3:
            value = value << (24 - 8 * offset)
    else:
        order: list[int | None] = [None] * _BYTES
        order[3::4] = [min(offset + k * stride, _BYTES - 1) for k in range(16)]
        value = loaded.shuffled(order).bitcast(I32.of(16))
    return value.sar(24) if dtype.is_signed else value >> 24


def _columns(pointer: Pointer, distance: int, lanes: int, rows: int, valid: int) -> list[Value]:
    """Transposes a piece of each row: gives a vector of `lanes` lanes for each column of a piece.

    distance  elements from a row's piece to the next one's
    rows      how many exist, at most `lanes`; the other lanes hold anything
    valid     columns that may be read

    Pieces of 16 bytes are put together so that each 128-bit part of a register holds another group of rows; then every
    part is transposed in itself. So one network serves all vector lengths, and no element crosses a register.
    """
    fn, width = pointer.fn, tiles.piece(pointer.element.bytes)
    total = max(lanes, width)
    mask = None if valid >= width else LaneMask(fn, valid, width)

    def piece(row: int) -> Value:
        if row >= rows:
            return fn.poison(pointer.element.of(width))
        return pointer[row * distance].load(width, mask, "poison")

    parts = [joined([piece(row) for row in range(first, total, width)]) for first in range(width)]
    half = width // 2
    low = [q * width + k // 2 + total * (k % 2) for q in range(total // width) for k in range(width)]
    orders = [low, [k + half for k in low]]
    step = 1
    while step < width:
        parts = [parts[k].shuffled(order, parts[k + half]) for k in range(half) for order in orders]
        step *= 2
    return parts if lanes == total else [part.shuffled(range(lanes)) for part in parts]
