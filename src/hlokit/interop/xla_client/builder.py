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

    The handle of an op that broke a rule has no value: it may be passed on, and `build` raises the error.

    Parameters
    ----------
    builder : XlaBuilder
        The builder that the value belongs to.
    handle : hlokit.XlaOp or None
        hlokit's handle; None if the op broke a rule.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> builder = xc.XlaBuilder("one")
    >>> xc.ops.Constant(builder, np.float32(1)).core
    <constant.1: f32[]>
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
    """Builds a computation. Op functions raise only TypeError: the first op that breaks a rule makes `build` raise.

    Parameters
    ----------
    name : str
        The name of the computation.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> builder = xc.XlaBuilder("double")
    >>> x = xc.ops.Parameter(builder, 0, xc.Shape("f32[2]"))
    >>> builder.build(xc.ops.Add(x, x)).program_shape()
    (parameter.1: f32[2]) -> f32[2]
    """

    def __init__(self, name: str, /) -> None:
        self.core = hk.Builder(name, source_info=False)
        self.error: XlaRuntimeError | None = None
        self._metadata: OpMetadata | None = None
        self._sharding: Sharding | None = None
        self._frontend_attributes: dict[str, str] = {}

    def record(self, error: HlokitError) -> None:
        """Makes `build` raise an error, unless an earlier one was recorded.

        Parameters
        ----------
        error : HlokitError
            The error.
        """
        if self.error is None:
            self.error = status_error(error)

    def build(self, root: XlaOp | None = None) -> XlaComputation:
        """The computation of the ops that were added since the last call.

        Handles of these ops have no value afterwards: further ops belong to the next computation.

        Parameters
        ----------
        root : XlaOp, optional
            The op whose value is the result; by default the last one.

        Returns
        -------
        XlaComputation
            The computation.

        Raises
        ------
        XlaRuntimeError
            An op broke a rule, whose label is in the message, or there is no op (BUILDER-3).
        """
        computation = XlaComputation.of(self._asked(root, self.core.build))
        self.core = hk.Builder(self.core.name, source_info=False)
        return computation

    def Build(self, root: XlaOp | None = None) -> XlaComputation:
        """`build`, under another of jaxlib's names.

        Parameters
        ----------
        root : XlaOp, optional
            The op whose value is the result; by default the last one.

        Returns
        -------
        XlaComputation
            The computation.

        Raises
        ------
        XlaRuntimeError
            As `build`.
        """
        return self.build(root)

    # -- questions

    def get_shape(self, op: XlaOp, /) -> Shape:
        """The shape of an op's value.

        Parameters
        ----------
        op : XlaOp
            A handle of this builder.

        Returns
        -------
        Shape
            The shape, with its layout.

        Raises
        ------
        XlaRuntimeError
            An op broke a rule, or `op` is of another computation.

        Examples
        --------
        >>> from hlokit.interop import xla_client as xc
        >>> builder = xc.XlaBuilder("one")
        >>> builder.get_shape(xc.ops.Constant(builder, np.float32(1)))
        f32[]
        """
        return Shape.of(self._asked(op, self.core.get_shape))

    def GetShape(self, op: XlaOp, /) -> Shape:
        """`get_shape`, under another of jaxlib's names.

        Parameters
        ----------
        op : XlaOp
            A handle of this builder.

        Returns
        -------
        Shape
            The shape, with its layout.

        Raises
        ------
        XlaRuntimeError
            As `get_shape`.
        """
        return self.get_shape(op)

    def get_program_shape(self, root: XlaOp | None = None) -> ProgramShape:
        """The shapes of the parameters so far, and of the result.

        Parameters
        ----------
        root : XlaOp, optional
            The op whose value is the result; by default the last one.

        Returns
        -------
        ProgramShape
            The shapes.

        Raises
        ------
        XlaRuntimeError
            An op broke a rule, or there is no op.
        """
        return ProgramShape.of(self._asked(root, self.core.get_program_shape))

    def is_constant(self, op: XlaOp, /) -> bool:
        """Whether an op depends on no parameter and on nothing stateful (BUILDER-12).

        Parameters
        ----------
        op : XlaOp
            A handle of this builder.

        Returns
        -------
        bool
            True if its value can be computed when the program is compiled.

        Raises
        ------
        XlaRuntimeError
            An op broke a rule, or `op` is of another computation.
        """
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
        """Gives metadata to the ops that are added from now on.

        Parameters
        ----------
        metadata : OpMetadata
            The metadata; it is read when an op is added.
        """
        self._metadata = metadata

    def clear_op_metadata(self) -> None:
        """Ends what `set_op_metadata` began."""
        self._metadata = None

    @raises_status
    def set_sharding(self, sharding: OpSharding, /) -> None:
        """Gives a sharding to the ops that are added from now on.

        Parameters
        ----------
        sharding : OpSharding
            The sharding; later changes to it have no effect.

        Raises
        ------
        XlaRuntimeError
            The fields describe no sharding.
        """
        self._sharding = sharding.core

    def clear_sharding(self) -> None:
        """Ends what `set_sharding` began."""
        self._sharding = None

    def set_frontend_attributes(self, attributes: FrontendAttributes, /) -> None:
        """Gives frontend attributes to the ops that are added from now on.

        Parameters
        ----------
        attributes : FrontendAttributes
            The names and texts; later changes to them have no effect.
        """
        self._frontend_attributes = dict(attributes.map)

    def clear_frontend_attributes(self) -> None:
        """Ends what `set_frontend_attributes` began."""
        self._frontend_attributes = {}

    @contextmanager
    def marking(self) -> Generator[None]:
        """A context whose ops get the metadata, sharding and frontend attributes that are set. Op functions use it.

        Returns
        -------
        context manager
            It has no value.
        """
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
        """Lets part of the result use a parameter's memory; checked by `build` (BUILDER-13).

        Parameters
        ----------
        output_index : sequence of int
            The path into the result's tuple; empty for the result itself.
        param_number : int
            The parameter.
        param_index : sequence of int
            The path into the parameter's tuple.
        """
        self.core.set_up_alias(tuple(output_index), param_number, tuple(param_index))
