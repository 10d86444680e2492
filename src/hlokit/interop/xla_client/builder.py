"""XlaBuilder and XlaOp, with XLA's way of reporting errors: an op never raises, `build` does."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import hlokit as hk
from hlokit.errors import HlokitError
from hlokit.interop.xla_client.computation import XlaComputation
from hlokit.interop.xla_client.errors import XlaRuntimeError, raises_status, status_error
from hlokit.interop.xla_client.protos import FrontendAttributes, OpMetadata
from hlokit.interop.xla_client.shapes import ProgramShape, Shape
from hlokit.interop.xla_client.sharding import OpSharding
from hlokit.types.sharding import Sharding

R = TypeVar("R")


class RefusedOp(Exception):
    """An op is used that its builder refused with this error."""

    def __init__(self, error: XlaRuntimeError) -> None:
        super().__init__(error)
        self.error = error


class XlaOp:
    """A handle on a value of a builder. It has no operators; two handles are equal when they are the same object.

    The handle of an op that was refused stands for nothing: it may be passed on, and `build` raises the error.
    """

    __slots__ = ("_handle", "builder")

    def __init__(self, builder: XlaBuilder, handle: hk.XlaOp | None) -> None:
        self.builder = builder
        self._handle = handle

    @property
    def core(self) -> hk.XlaOp:
        """hlokit's handle. Raises RefusedOp if there is none."""
        if self._handle is None:
            assert self.builder.error is not None
            raise RefusedOp(self.builder.error)
        return self._handle


class XlaBuilder:
    """Builds a computation. Ops raise nothing but TypeError: the first that breaks a rule makes `build` raise."""

    def __init__(self, name: str, /) -> None:
        self.core = hk.Builder(name, source_info=False)
        self.error: XlaRuntimeError | None = None
        self._metadata: OpMetadata | None = None
        self._sharding: Sharding | None = None
        self._frontend_attributes: dict[str, str] = {}

    def record(self, error: HlokitError) -> None:
        """Makes `build` raise `error`, unless there was one before."""
        if self.error is None:
            self.error = status_error(error)

    def build(self, root: XlaOp | None = None) -> XlaComputation:
        """The computation of what was added since the last call; without `root` the last op is the result.

        Handles of its ops stand for nothing afterwards: what is added then makes another computation.
        """
        computation = XlaComputation.of(self._asked(root, self.core.build))
        self.core = hk.Builder(self.core.name, source_info=False)
        return computation

    def Build(self, root: XlaOp | None = None) -> XlaComputation:
        return self.build(root)

    # -- questions

    def get_shape(self, op: XlaOp, /) -> Shape:
        """The shape of an op. As every question to a builder with an error, it raises that."""
        return Shape.of(self._asked(op, self.core.get_shape))

    def GetShape(self, op: XlaOp, /) -> Shape:
        return self.get_shape(op)

    def get_program_shape(self, root: XlaOp | None = None) -> ProgramShape:
        return ProgramShape.of(self._asked(root, self.core.get_program_shape))

    def is_constant(self, op: XlaOp, /) -> bool:
        """Whether it depends on no parameter and on nothing stateful (BUILDER-12)."""
        return self._asked(op, self.core.is_constant)

    @raises_status
    def _asked(self, op: XlaOp | None, question: Callable[[Any], R]) -> R:
        if self.error is not None:
            raise XlaRuntimeError(str(self.error)) from self.error
        try:
            return question(None if op is None else op.core)
        except RefusedOp as refused:
            raise XlaRuntimeError(str(refused.error)) from refused.error

    # -- what sticks to the ops added while it is set

    def set_op_metadata(self, metadata: OpMetadata, /) -> None:
        self._metadata = metadata

    def clear_op_metadata(self) -> None:
        self._metadata = None

    @raises_status
    def set_sharding(self, sharding: OpSharding, /) -> None:
        self._sharding = sharding.core

    def clear_sharding(self) -> None:
        self._sharding = None

    def set_frontend_attributes(self, attributes: FrontendAttributes, /) -> None:
        self._frontend_attributes = dict(attributes.map)

    def clear_frontend_attributes(self) -> None:
        self._frontend_attributes = {}

    @contextmanager
    def marking(self) -> Generator[None]:
        """Ops added inside get what is set."""
        with ExitStack() as stack:
            if self._metadata is not None:
                fields = {name: getattr(self._metadata, name) or "" for name in ("op_type", "op_name", "source_file")}
                stack.enter_context(self.core.metadata(**fields, source_line=self._metadata.source_line))
            if self._sharding is not None:
                stack.enter_context(self.core.sharding(self._sharding))
            if self._frontend_attributes:
                stack.enter_context(self.core.frontend_attributes(self._frontend_attributes))
            yield

    def setup_alias(self, output_index: Sequence[int], param_number: int, param_index: Sequence[int], /) -> None:
        """The output at this index may share a parameter's buffer; checked when built (BUILDER-13)."""
        self.core.set_up_alias(tuple(output_index), param_number, tuple(param_index))
