"""Random legal modules, drawn op by op from the registry; `random_module` gives the same one for the same seed."""

from __future__ import annotations

from hlokit.hlo.module import HloModule
from hlokit.judge.fuzz import recipes, recipes_called, recipes_devices
from hlokit.judge.fuzz.graph import COLLECTIVES, DEFAULTS, Draw, Graph, Options

__all__ = ["grown", "random_draw", "random_module", "recipes", "recipes_called", "recipes_devices"]


def random_draw(seed: int, options: Options = DEFAULTS) -> Draw:
    """A legal module, with the errors of the illegal drafts on the way to it."""
    draw = Draw(seed, options)
    graph = Graph(draw, "entry")
    for _ in range(graph.integer(1, 3)):
        graph.parameter(graph.dtype()[graph.sizes()])
    if options.devices != (1, 1):
        graph.grow(1, COLLECTIVES)
    graph.grow(graph.integer(1, options.instructions))
    roots = graph.arrays[-6:]
    if not (len(roots) == 1 or graph.chance(0.3)):
        graph.add("tuple", roots)
    draw.module.add_computation(graph.computation, entry=True)
    graph.computation.set_root(graph.computation.root)
    return draw


def random_module(seed: int, options: Options = DEFAULTS) -> HloModule:
    """A random legal module; the same seed and options give the same one."""
    return random_draw(seed, options).module


def grown(module: HloModule, seed: int, options: Options = DEFAULTS) -> HloModule:
    """A copy of a module whose entry computes more: random ops on the values that it has. Its result is a tuple of
    the result that it had and of the last values."""
    draw = Draw(seed, options)
    draw.module = module.clone()
    entry = draw.module.entry
    graph = Graph(draw, "grown")
    graph.computation = entry
    graph.arrays = [i for i in entry.post_order() if i.shape.is_array and not i.shape.is_unbounded]
    root = entry.root
    graph.grow(graph.integer(1, options.instructions))
    values = [v for v in graph.arrays[-4:] if v is not root]
    entry.set_root(graph.add("tuple", [root, *values]))
    draw.module.result_layout, draw.module.input_output_alias = None, []
    draw.module.parameter_layouts = None
    return draw.module
