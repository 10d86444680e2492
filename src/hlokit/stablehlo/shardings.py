"""Shardings of StableHLO values: XLA's text in mhlo.sharding, axes of a mesh in sdy.sharding."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from hlokit.stablehlo.tree import DialectAttribute
from hlokit.text.groups import parse_sharding
from hlokit.types.sharding import Sharding

_SHARDING = re.compile(r'\s*@"?([\w$.\-]+)"?\s*,\s*\[(.*)\]\s*\Z', re.DOTALL)
_DIMENSION = re.compile(r"\{([^{}]*)\}(?:p[0-9]+)?")
_AXIS = re.compile(r'"([^"]*)"\s*(:)?')
_MESH = re.compile(r'"([^"]*)"\s*=\s*([0-9]{1,9})')


def mesh_sizes(mesh: Any) -> dict[str, int]:
    """The axes of a mesh, as written in `["x"=2, "y"=4]`, and their sizes."""
    return {name: int(size) for name, size in _MESH.findall(str(mesh))}


def sharding_of(attribute: Any, meshes: Mapping[str, Any], is_tuple: bool = False) -> Sharding | None:
    """The sharding, where HLO can say it; None for parts of axes and priorities, which only partitioning would need."""
    if isinstance(attribute, str):
        return parse_sharding(attribute)
    if not isinstance(attribute, DialectAttribute) or attribute.name != "sdy.sharding" or is_tuple:
        return None
    found = _SHARDING.match(str(attribute.value))
    if found is None or found[1] not in meshes:
        return None
    sizes = mesh_sizes(meshes[found[1]])
    names = list(sizes)
    used: list[int] = []
    tile: list[int] = []
    for dimension in _DIMENSION.findall(found[2]):
        axes = _AXIS.findall(dimension)
        if any(part or name not in sizes for name, part in axes):
            return None
        used += [names.index(name) for name, _ in axes]
        tile.append(math.prod(sizes[name] for name, _ in axes))
    if math.prod(tile) <= 1:
        return Sharding("replicated")
    rest = [i for i in range(len(names)) if i not in used]
    if len(set(used)) != len(used):
        return None
    order = (*used, *rest)
    copies = math.prod(sizes[names[i]] for i in rest)
    reshape, transpose = tuple(sizes.values()), order
    if order == tuple(range(len(names))):
        reshape, transpose = (math.prod(reshape),), ()
    if copies > 1:
        tile.append(copies)
    return Sharding("tiled", tile=tuple(tile), reshape=reshape, transpose=transpose, replicate_last=copies > 1)
