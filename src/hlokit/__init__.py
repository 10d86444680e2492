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
from hlokit.builder.contraction import *  # noqa: F403
from hlokit.builder.control import *  # noqa: F403
from hlokit.builder.convolution import *  # noqa: F403
from hlokit.builder.core import Builder as Builder
from hlokit.builder.core import XlaOp as XlaOp
from hlokit.builder.custom_calls import *  # noqa: F403
from hlokit.builder.dynamic import *  # noqa: F403
from hlokit.builder.elementwise import *  # noqa: F403
from hlokit.builder.factorizations import *  # noqa: F403
from hlokit.builder.indexing import *  # noqa: F403
from hlokit.builder.linalg import *  # noqa: F403
from hlokit.builder.math import *  # noqa: F403
from hlokit.builder.matrix import *  # noqa: F403
from hlokit.builder.movement import *  # noqa: F403
from hlokit.builder.reduction import *  # noqa: F403
from hlokit.errors import ArgumentError, BuildError, EvaluationError, HlokitError, ParseError, ShapeError, UnsupportedError, VerifyError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import OPS, Op
from hlokit.types.dtype import DTYPES, DType, dtype
from hlokit.types.dtype import bf16, c64, c128, f4e2m1fn, f8e3m4, f8e4m3, f8e4m3b11fnuz, f8e4m3fn, f8e4m3fnuz
from hlokit.types.dtype import f8e5m2, f8e5m2fnuz, f8e8m0fnu, f16, f32, f64, pred
from hlokit.types.dtype import s1, s2, s4, s8, s16, s32, s64, u1, u2, u4, u8, u16, u32, u64
from hlokit.types.groups import ReplicaGroups
from hlokit.types.layout import Layout
from hlokit.types.literal import Literal
from hlokit.types.shape import NIL, OPAQUE, TOKEN, ProgramShape, Shape
from hlokit.types.sharding import Sharding
from hlokit.types.window import ConvDimensionNumbers, Window, WindowDimension

__version__ = "0.1.0"
