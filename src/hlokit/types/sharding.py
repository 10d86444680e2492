"""Shardings (HSHARD rules): parsed, checked, printed; nothing is partitioned yet (HSHARD-7)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from hlokit.errors import ShapeError
from hlokit.types.groups import MOST_IDS


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
