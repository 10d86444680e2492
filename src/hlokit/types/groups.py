"""Groups of devices that take part in a collective (GRP rules, HGRP rules)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hlokit.errors import ShapeError
from hlokit.types.integers import integers
from hlokit.types.iota import MOST_IDS, iota_ids, merged_iota
from hlokit.types.mesh import Axis, Mesh


@dataclass(frozen=True, slots=True)
class ReplicaGroups:
    """Groups that are listed, the iota form `[G,S]<=[reshape]T(transpose)` (GRP-9), or axes of a mesh (HGRP-6).

    The form is kept for printing (HGRP-5). `groups` empty (and no other form) means one group of all participants
    (GRP-1). `as_iota` and `as_lists` bring one form to another.

    Parameters
    ----------
    groups : tuple of tuples of int, optional
        The ids of each group, where they are listed.
    iota_dimensions : (int, int), optional
        The number of groups and their size in the iota form.
    reshape, transpose : tuple of int, optional
        The dimensions in which the iota form lays out the ids 0, 1, ..., and the order in which it then reads them.
    mesh : Mesh, optional
        The mesh of devices, in the form by axes.
    axes : tuple of Axis, optional
        The axes of the mesh along which the devices of a group differ.

    Examples
    --------
    >>> from hlokit.types.mesh import Axis, Mesh
    >>> print(hk.ReplicaGroups.along(Mesh((("a", 2), ("b", 2))), [Axis("a")]).as_lists())
    {{0,2},{1,3}}
    """

    groups: tuple[tuple[int, ...], ...] = ()
    iota_dimensions: tuple[int, int] | None = None
    reshape: tuple[int, ...] = ()
    transpose: tuple[int, ...] = ()
    mesh: Mesh | None = None
    axes: tuple[Axis, ...] = ()

    @staticmethod
    def explicit(groups: Iterable[Iterable[int]]) -> ReplicaGroups:
        """Groups that are listed.

        Parameters
        ----------
        groups : iterable of iterables of int
            The ids of each group.

        Returns
        -------
        ReplicaGroups
            The groups.
        """
        try:
            return ReplicaGroups(tuple(integers(group, "GRP-2", "replica group") for group in groups))
        except TypeError:
            raise ShapeError("GRP-2", "replica groups", repr(groups), "lists of integers") from None

    @staticmethod
    def iota(count: int, size: int, reshape: Iterable[int], transpose: Iterable[int] | None = None) -> ReplicaGroups:
        """The iota form `[count,size]<=[reshape]T(transpose)`, with as few dimensions as say the same.

        Parameters
        ----------
        count : int
            The number of groups.
        size : int
            The size of each.
        reshape : iterable of int
            The dimensions that the ids 0, 1, ... are laid out in.
        transpose : iterable of int, optional
            The order in which these dimensions are then read.

        Returns
        -------
        ReplicaGroups
            The groups.

        Raises
        ------
        ShapeError
            A size is not positive, or the products differ (HGRP-3).
        """
        sizes = tuple(reshape)
        order = tuple(transpose) if transpose is not None else tuple(range(len(sizes)))
        if min((count, size, *sizes)) < 1 or math.prod(sizes) != count * size:
            raise ShapeError("HGRP-3", "iota replica groups", (count, size, *sizes), "positive sizes of equal product")
        if sorted(order) != list(range(len(sizes))):
            raise ShapeError("HGRP-3", "iota transpose", order, f"a permutation of 0..{len(sizes) - 1}")
        return ReplicaGroups((), (count, size), *merged_iota(sizes, order))

    @staticmethod
    def along(mesh: Mesh, axes: Iterable[Axis]) -> ReplicaGroups:
        """The devices of a mesh that differ in their place along some axes only, the first axis the slowest.

        Parameters
        ----------
        mesh : Mesh
            The mesh.
        axes : iterable of Axis
            The axes.

        Returns
        -------
        ReplicaGroups
            The groups.
        """
        mesh.check()
        groups = ReplicaGroups(mesh=mesh, axes=tuple(axes))
        mesh.check_axes(groups.axes)
        return groups

    @property
    def is_everyone(self) -> bool:
        """Whether no groups are said: one group of all participants."""
        return not self.groups and self.iota_dimensions is None and self.mesh is None

    def as_iota(self) -> ReplicaGroups | None:
        """The iota form of these groups.

        Returns
        -------
        ReplicaGroups or None
            The groups; None if they are listed, or the mesh's devices are in an order that has none.
        """
        if self.mesh is None:
            return self if self.iota_dimensions is not None else None
        ordered, size = self._ordered(self.mesh)
        if ordered.devices:
            return None
        sizes, order = ordered.reshape or (ordered.size,), ordered.transpose or (0,)
        return ReplicaGroups.iota(ordered.size // size, size, sizes, order)

    def as_lists(self) -> ReplicaGroups:
        """These groups as lists. No groups stay none.

        Returns
        -------
        ReplicaGroups
            The groups.

        Raises
        ------
        ShapeError
            There are more ids than any machine has devices (GRP-2).
        """
        return self if self.is_everyone else ReplicaGroups(self.expand(0))

    def _ordered(self, mesh: Mesh) -> tuple[Mesh, int]:
        """The devices group after group, and the size of a group."""
        if mesh.is_maximal:
            return mesh, 1
        sizes, places = mesh.factored(self.axes)
        rest = [d for d in range(len(sizes)) if d not in places]
        return mesh.transposed(sizes, [*rest, *places]), math.prod(sizes[d] for d in places)

    def expand(self, participants: int) -> tuple[tuple[int, ...], ...]:
        """The groups as tuples of ids.

        Parameters
        ----------
        participants : int
            The number of ids that no groups stand for (GRP-1).

        Returns
        -------
        tuple of tuple of int
            The groups.
        """
        if self.iota_dimensions is not None:
            if math.prod(self.reshape) > MOST_IDS:
                raise ShapeError("GRP-2", "replica groups", str(self), f"at most {MOST_IDS} ids")
            return _rows(iota_ids(self.reshape, self.transpose), self.iota_dimensions[1])
        if self.mesh is not None:
            ordered, size = self._ordered(self.mesh)
            if ordered.size > MOST_IDS:
                raise ShapeError("GRP-2", "replica groups", str(self), f"at most {MOST_IDS} ids")
            return _rows(ordered.device_ids(), size)
        return self.groups or (tuple(range(participants)),)

    @property
    def group_size(self) -> int | None:
        """The size of the groups: of the first; None for the empty form."""
        if self.iota_dimensions is not None:
            return self.iota_dimensions[1]
        if self.mesh is not None:
            return math.prod(map(self.mesh.size_of, self.axes))
        return len(self.groups[0]) if self.groups else None

    def __str__(self) -> str:
        if self.mesh is not None:
            return f"{self.mesh} {{{','.join(map(str, self.axes))}}}"
        if self.iota_dimensions is None:
            return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in self.groups) + "}"
        text = f"[{self.iota_dimensions[0]},{self.iota_dimensions[1]}]<=[{','.join(map(str, self.reshape))}]"
        if self.transpose != tuple(range(len(self.reshape))):
            text += f"T({','.join(map(str, self.transpose))})"
        return text


def _rows(ids: tuple[int, ...], size: int) -> tuple[tuple[int, ...], ...]:
    return tuple(ids[i : i + size] for i in range(0, len(ids), size))
