"""Imports between the package's modules: which of them need each other."""

import grimp
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

CIRCLES = [
    ("hlokit.hlo.", "hlokit.text."),  # str(module) prints it
    ("hlokit.builder.",),  # handles have operators, which are op functions
    ("hlokit.stablehlo.control", "hlokit.stablehlo.mapping"),  # the table of rules, some of which ask it for others
    ("hlokit.interop.xla_client.options", "hlokit.interop.xla_client.options_proto"),  # as jaxlib's, written by methods
]
"""How the names of modules begin that import each other when they run. No others do."""


def circles() -> list[list[str]]:
    """The modules that import each other, at once or in functions. Imports for annotations alone do not count."""
    graph = grimp.build_graph("hlokit", exclude_type_checking_imports=True, cache_dir=None)
    modules = sorted(graph.modules)
    number = {module: k for k, module in enumerate(modules)}
    arrows = [(number[m], number[n]) for m in modules for n in sorted(graph.find_modules_directly_imported_by(m))]
    matrix = coo_array((np.ones(len(arrows)), tuple(np.array(arrows).T)), shape=(len(modules),) * 2)
    count, labels = connected_components(matrix, connection="strong")
    parts = [[m for m, label in zip(modules, labels) if label == part] for part in range(count)]
    return [part for part in parts if len(part) > 1]


def test_no_modules_import_each_other_but_the_listed() -> None:
    found = circles()
    unlisted = [circle for circle in found if not any(all(m.startswith(names) for m in circle) for names in CIRCLES)]
    assert unlisted == []
    assert len(found) == len(CIRCLES)
