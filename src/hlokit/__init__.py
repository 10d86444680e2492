"""hlokit: XLA in Python. Build a program or read one, check it, run it.

    import hlokit as hk

    b = hk.Builder("axpy")
    x, y = b.parameter(0, hk.f32[3]), b.parameter(1, hk.f32[3])
    module = b.build(2.0 * x + y)
    hk.evaluate(module, [1.0, 2.0, 3.0], [10.0, 20.0, 30.0])

Op functions have XlaBuilder's names in snake_case (`hk.dot_general`, `hk.while_`); functions without operands are
methods of the builder (`b.iota`, `b.constant`). All errors derive from `hk.HlokitError`.
"""

from __future__ import annotations

from hlokit import ops as _ops  # noqa: F401  # pyright: ignore[reportUnusedImport]  # fills the registry
from hlokit.api import *  # noqa: F403
from hlokit.builder.collectives import *  # noqa: F403
from hlokit.builder.communication import *  # noqa: F403
from hlokit.builder.constants import *  # noqa: F403
from hlokit.builder.contraction import *  # noqa: F403
from hlokit.builder.control import *  # noqa: F403
from hlokit.builder.convolution import *  # noqa: F403
from hlokit.builder.custom_calls import *  # noqa: F403
from hlokit.builder.dynamic import *  # noqa: F403
from hlokit.builder.einsum import *  # noqa: F403
from hlokit.builder.elementwise import *  # noqa: F403
from hlokit.builder.factorizations import *  # noqa: F403
from hlokit.builder.indexing import *  # noqa: F403
from hlokit.builder.linalg import *  # noqa: F403
from hlokit.builder.loops import *  # noqa: F403
from hlokit.builder.math import *  # noqa: F403
from hlokit.builder.matrix import *  # noqa: F403
from hlokit.builder.movement import *  # noqa: F403
from hlokit.builder.prng import *  # noqa: F403
from hlokit.builder.reduction import *  # noqa: F403
from hlokit.builder.slicing import *  # noqa: F403
from hlokit.exports import *  # noqa: F403

__version__ = "0.1.0"
