"""Meshes (HMESH rules): devices in an array whose dimensions, the axes, have names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from hlokit.errors import ShapeError
from hlokit.types.iota import MOST_IDS, cut_parts, iota_ids, iota_of, iota_parts, merged_iota


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a mesh, or the part of one that `'b':(pre)size` names: `pre` parts lie outside of it.

    `size` 0 stands for the whole axis.

    >>> print(Axis("b"), Axis("b", 2, 4))
    'b' 'b':(2)4
    """

    name: str
    pre: int = 1
    size: int = 0

    @property
    def is_part(self) -> bool:
        return self.size != 0

    def __str__(self) -> str:
        return f"{quoted(self.name)}:({self.pre}){self.size}" if self.is_part else quoted(self.name)


def quoted(name: str) -> str:
    """The name of an axis as text has it: in single quotes."""
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass(frozen=True, slots=True)
class Mesh:
    """Devices in the row-major order of axes; one device alone where there are no axes (a maximal mesh).

    axes      (name, size) pairs, major to minor
    devices   their ids, or empty when they are 0, 1, 2, ... or when `reshape` and `transpose` give them as an iota

    >>> mesh = Mesh((("a", 2), ("b", 4)))
    >>> print(mesh, mesh.size, Mesh((), (3,)))
    mesh['a'=2,'b'=4] 8 maximal_mesh[device_id=3]
    """

    axes: tuple[tuple[str, int], ...]
    devices: tuple[int, ...] = ()
    reshape: tuple[int, ...] = ()
    transpose: tuple[int, ...] = ()

    @staticmethod
    def make(
        axes: Iterable[tuple[str, int]],
        devices: Iterable[int] = (),
        reshape: Iterable[int] = (),
        transpose: Iterable[int] = (),
    ) -> Mesh:
        """A checked mesh in its one form: an order that is 0, 1, 2, ... is not said, an iota is the shortest.

        Raises ShapeError: HMESH-1 for the axes, HMESH-2 for the devices.

        >>> print(Mesh.make([("a", 2), ("b", 2)], [0, 1, 2, 3]))
        mesh['a'=2,'b'=2]
        """
        mesh = Mesh(tuple(axes), tuple(devices), tuple(reshape), tuple(transpose))
        mesh.check()
        if mesh.reshape:
            sizes, order = merged_iota(mesh.reshape, mesh.transpose)
            return replace(mesh, reshape=sizes if len(sizes) > 1 else (), transpose=order if len(sizes) > 1 else ())
        in_order = mesh.axes and mesh.devices == tuple(range(len(mesh.devices)))
        return replace(mesh, devices=()) if in_order else mesh

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(size for _, size in self.axes)

    @property
    def is_maximal(self) -> bool:
        """Whether it is one device, without axes."""
        return not self.axes and len(self.devices) == 1

    def axis_size(self, name: str) -> int:
        """The size of the axis; 0 if the mesh has none of this name."""
        return dict(self.axes).get(name, 0)

    def size_of(self, axis: Axis) -> int:
        """The size of the axis, or of the part of one."""
        return axis.size or self.axis_size(axis.name)

    def check(self) -> None:
        """HMESH-1: axes of different names and sizes >= 1. HMESH-2: each device of the mesh once."""
        names = [name for name, _ in self.axes]
        if len(set(names)) != len(names) or min((size for _, size in self.axes), default=1) < 1:
            raise ShapeError("HMESH-1", "mesh axes", str(self)[:200], "different names, sizes >= 1")
        if self.size >= 2**63:
            raise ShapeError("HMESH-1", "mesh devices", self.size, "a number of 64 bits")
        if not self.axes:
            if len(self.devices) > 1 or min(self.devices, default=0) < 0 or self.reshape:
                raise ShapeError("HMESH-2", "mesh without axes", self.devices, "one device")
            return
        if (self.reshape or self.transpose) and (
            math.prod(self.reshape) != self.size or sorted(self.transpose) != list(range(len(self.reshape)))
        ):
            found = f"[{','.join(map(str, self.reshape))}]T({','.join(map(str, self.transpose))})"
            raise ShapeError("HMESH-2", "mesh device_ids", found, f"{self.size} devices in a permuted order")
        if self.devices and (len(self.devices) != self.size or sorted(self.devices) != list(range(self.size))):
            raise ShapeError("HMESH-2", "mesh device_ids", self.devices, f"each of 0..{self.size - 1} once")

    def check_axes(self, *lists: Sequence[Axis]) -> None:
        """HMESH-3, HMESH-4: axes of the mesh, none of which overlap; of one list, none that are one part together."""
        for axis in (axis for axes in lists for axis in axes):
            whole = self.axis_size(axis.name)
            if not whole:
                raise ShapeError("HMESH-3", "axis", str(axis), f"one of {self}")
            if axis.is_part and not (
                axis.pre >= 1 and 1 < axis.size < whole and whole % (axis.pre * axis.size) == 0
            ):
                raise ShapeError("HMESH-3", "part of an axis", str(axis), f"(pre)size that divide {whole}, 1 < size")
        self.factored([axis for axes in lists for axis in axes])
        for axes in lists:
            for a, b in pairwise(axes):
                if a.is_part and b.is_part and a.name == b.name and a.pre * a.size == b.pre:
                    raise ShapeError("HMESH-4", "axes", f"{a}, {b}", "one part, which they are together")

    def device_ids(self) -> tuple[int, ...]:
        """The devices in the order of the mesh. ShapeError (HMESH-2) for more of them than any machine has."""
        if self.devices:
            return self.devices
        if self.size > MOST_IDS:
            raise ShapeError("HMESH-2", "mesh devices", self.size, f"at most {MOST_IDS} devices")
        return iota_ids(self.reshape or (self.size,), self.transpose)

    def factored(self, axes: Sequence[Axis]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The mesh's sizes once its axes are cut into the parts that `axes` name; the place among them of each.

        Raises ShapeError (HMESH-4) for axes that overlap.

        >>> Mesh((("a", 2), ("b", 8))).factored([Axis("b", 2, 2), Axis("a")])
        ((2, 2, 2, 2), (2, 0))
        """
        sizes: list[int] = []
        starts: dict[tuple[str, int, int], int] = {}
        for name, whole in self.axes:
            cuts = {1, whole}
            for axis in axes:
                if axis.name == name and axis.is_part:
                    cuts |= {axis.pre, axis.pre * axis.size}
            ends = sorted(cuts) if whole > 1 else [1, 1]
            for a, b in pairwise(ends):
                starts[name, a, b] = len(sizes)
                sizes.append(b // a)
                if b % a:
                    raise ShapeError("HMESH-4", "axes", ", ".join(map(str, axes)), f"parts of {name}={whole}")
        keys = [(axis.name, axis.pre, axis.pre * self.size_of(axis)) for axis in axes]
        places = [starts.get(key, -1) for key in keys]
        if -1 in places or len(set(places)) != len(places):
            raise ShapeError("HMESH-4", "axes", ", ".join(map(str, axes)), f"axes of {self}, each once")
        return tuple(sizes), tuple(places)

    def transposed(self, sizes: Sequence[int], order: Sequence[int]) -> Mesh:
        """The same devices in the order that reshaping the mesh to `sizes` and transposing it by `order` gives.

        Its order is an iota if this one's is and the sizes go together, else a list.
        """
        axes = tuple((str(d), sizes[d]) for d in order)
        if not self.devices:
            cut = cut_parts(iota_parts(self.reshape or (self.size,), self.transpose), sizes)
            if cut is not None:
                return Mesh.make(axes, (), *iota_of([part for d in order for part in cut[d]]))
        ids = np.array(self.device_ids()).reshape(sizes).transpose(order)
        return Mesh.make(axes, map(int, ids.reshape(-1)))

    def __str__(self) -> str:
        if self.is_maximal:
            return f"maximal_mesh[device_id={self.devices[0]}]"
        text = f"mesh[{','.join(f'{quoted(name)}={size}' for name, size in self.axes)}]"
        if self.devices:
            return f"{text}, device_ids=({','.join(map(str, self.devices))})"
        if self.reshape:
            order = f"T({','.join(map(str, self.transpose))})"
            return f"{text}, device_ids=([{','.join(map(str, self.reshape))}]{order})"
        return text
