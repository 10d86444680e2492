"""Shardings (HSHARD rules): parsed, checked, printed; nothing is partitioned yet (HSHARD-7)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hlokit.errors import ShapeError
from hlokit.types.groups import MOST_IDS, merged_iota

SUBGROUPS = ("manual", "unreduced", "replicated")
"""The order in which a normal form has its trailing dimensions (HSHARD-8)."""


@dataclass(frozen=True, slots=True)
class Sharding:
    """How one value lies on the devices, or (`elements`) how the leaves of a tuple do.

    kind     replicated, manual, unknown, unreduced, maximal, tiled, tuple
    device   the device of a maximal sharding
    tile     sizes of the tile assignment, the trailing `last_tile_dims` not being data dimensions
    devices  explicit device ids, or empty when `reshape` (and `transpose`) give them as an iota
    group    ("shard_as" or "shard_like", id) or None
    """

    kind: str
    device: int = 0
    tile: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    reshape: tuple[int, ...] = ()
    transpose: tuple[int, ...] = ()
    replicate_last: bool = False
    last_tile_dims: tuple[str, ...] = ()
    group: tuple[str, int] | None = None
    metadata: str = ""
    elements: tuple[Sharding, ...] = ()

    def check(self) -> None:
        """HSHARD-5: a tiling has several devices, as many as tiles, none twice."""
        for element in self.elements:
            element.check()
        if self.kind != "tiled":
            return
        count = math.prod(self.tile)
        if len(self.last_tile_dims) > len(self.tile):
            raise ShapeError("HSHARD-2", "last_tile_dims", self.last_tile_dims, f"at most {len(self.tile)} of them")
        if count < 2:
            raise ShapeError("HSHARD-5", "sharding devices", count, "more than one device in a tiled sharding")
        if count >= 2**63:
            raise ShapeError("HSHARD-5", "sharding devices", count, "a number of 64 bits")
        order = self.transpose or range(len(self.reshape))
        if min(self.tile) < 1 or min(self.reshape, default=1) < 1 or sorted(order) != list(range(len(self.reshape))):
            raise ShapeError("HSHARD-2", "sharding", str(self), "sizes >= 1, and T(...) a permutation")
        listed = len(self.devices) if self.devices else math.prod(self.reshape)
        if listed != count:
            raise ShapeError(
                "HSHARD-5", "sharding device list", f"{listed} devices", f"{count}, the product of the tile sizes"
            )
        if len(set(self.devices)) != len(self.devices):
            raise ShapeError("HSHARD-5", "sharding device list", self.devices, "no device twice")

    def normal(self) -> Sharding:
        """HSHARD-8: the form in which XLA keeps this sharding, which passes `check`.

        Of the trailing dimensions those of one kind are one, in the order of `SUBGROUPS`, and none has the size 1;
        devices with the same data are in ascending order.
        """
        if self.kind == "tuple":
            return replace(self, elements=tuple(element.normal() for element in self.elements))
        kinds = self.last_tile_dims or ("replicated",) * self.replicate_last
        if self.kind != "tiled" or not kinds:
            return self
        first = len(self.tile) - len(kinds)
        axes = {kind: [first + i for i, k in enumerate(kinds) if k == kind] for kind in SUBGROUPS}
        sizes = {kind: math.prod(self.tile[axis] for axis in axes[kind]) for kind in SUBGROUPS}
        given, kinds = kinds, tuple(kind for kind in SUBGROUPS if sizes[kind] > 1)
        data = self.tile[:first]
        if math.prod(data) == 1 and len(kinds) == 1 and (kinds[0] != "unreduced" or kinds == tuple({*given})):
            return Sharding(kinds[0], group=self.group, metadata=self.metadata)
        order = [*range(first), *(axis for kind in SUBGROUPS for axis in axes[kind])]
        sorted_last = sizes["replicated"]
        parts = self._parts(order, sorted_last)
        devices = reshape = transpose = ()
        if parts is not None:
            reshape, transpose = _iota_of(parts)
        else:
            ids = np.array(self.device_ids()).reshape(self.tile).transpose(order)
            devices = tuple(map(int, np.sort(ids.reshape(-1, sorted_last)).reshape(-1)))
        copied = kinds == ("replicated",)
        tile = (*data, *(sizes[kind] for kind in kinds))
        return replace(
            self, tile=tile, devices=devices, reshape=reshape, transpose=transpose if len(reshape) > 1 else (),
            replicate_last=copied, last_tile_dims=() if copied else kinds,
        )  # fmt: skip

    def _parts(self, order: Sequence[int], sorted_last: int) -> list[_Part] | None:
        """The iota's dimensions, cut where the tile's are, in this order of these; the last `sorted_last` ids ascend.

        None where there is no iota, or its dimensions cannot be cut so.
        """
        if not self.reshape:
            return None
        strides = [math.prod(self.reshape[i + 1 :]) for i in range(len(self.reshape))]
        dimensions = self.transpose or range(len(self.reshape))
        parts = [(self.reshape[d], strides[d]) for d in dimensions]
        order = [axis for axis in order if self.tile[axis] > 1]
        if order != sorted(order):
            cut = _cut(parts, self.tile)
            if cut is None:
                return None
            parts = [part for axis in order for part in cut[axis]]
        if sorted_last == 1:
            return parts
        cut = _cut(parts, (math.prod(self.tile) // sorted_last, sorted_last))
        return None if cut is None else cut[0] + sorted(cut[1], key=lambda part: -part[1])

    def check_count(self) -> None:
        """HSHARD-5: so many devices that they can be listed."""
        if math.prod(self.tile) > MOST_IDS:
            raise ShapeError("HSHARD-5", "sharding devices", str(self), f"at most {MOST_IDS} devices")

    def without_metadata(self) -> Sharding:
        """This sharding, saying nothing of where it comes from."""
        elements = tuple(element.without_metadata() for element in self.elements)
        return (
            self if not self.metadata and elements == self.elements else replace(self, metadata="", elements=elements)
        )

    def device_ids(self) -> tuple[int, ...]:
        """The devices of a tiled sharding in tile order.

        ShapeError (HSHARD-5) for more of them than any machine has: a short text may say so many.
        """
        self.check_count()
        if self.devices:
            return self.devices
        ids = np.arange(math.prod(self.reshape)).reshape(self.reshape)
        order = self.transpose or tuple(range(len(self.reshape)))
        return tuple(int(i) for i in ids.transpose(order).reshape(-1))

    def __str__(self) -> str:
        if self.kind == "tuple":
            return "{" + ", ".join(map(str, self.elements)) + "}"
        body = self.kind
        if self.kind == "maximal":
            body = f"maximal device={self.device}"
        elif self.kind == "tiled":
            body = f"devices=[{','.join(map(str, self.tile))}]{self._device_text()}"
            if self.replicate_last:
                body += " last_tile_dim_replicate"
            if self.last_tile_dims:
                body += f" last_tile_dims={{{', '.join(self.last_tile_dims)}}}"
        if self.group is not None:
            body += f" {self.group[0]} {self.group[1]}"
        if self.metadata:
            body += f" metadata={self.metadata}"
        return "{" + body + "}"

    def _device_text(self) -> str:
        if not self.reshape:
            return ",".join(map(str, self.devices))
        text = f"<=[{','.join(map(str, self.reshape))}]"
        return text + (f"T({','.join(map(str, self.transpose))})" if self.transpose else "")


_Part = tuple[int, int]
"""A dimension of an iota, or a part of one: its size, and how far apart its ids are."""


def _cut(parts: Sequence[_Part], sizes: Sequence[int]) -> list[list[_Part]] | None:
    """The parts, divided among dimensions of these sizes, major first; None if a part's size does not divide so."""
    pending = list(reversed(parts))
    cut: list[list[_Part]] = []
    for wanted in sizes:
        taken: list[_Part] = []
        while wanted > 1:
            size, stride = pending.pop()
            if size > wanted and size % wanted == 0:
                pending.append((size // wanted, stride))
                size, stride = wanted, stride * (size // wanted)
            if wanted % size:
                return None
            taken.append((size, stride))
            wanted //= size
        cut.append(taken)
    return cut


def _iota_of(parts: Sequence[_Part]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The reshape and transpose whose dimensions these are."""
    rows = sorted(range(len(parts)), key=lambda i: -parts[i][1])
    position = {i: d for d, i in enumerate(rows)}
    return merged_iota(tuple(parts[i][0] for i in rows), tuple(position[i] for i in range(len(parts))))
