"""Builder functions: reductions, windows, batch normalisation, scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hlokit.builder.core import ComputationLike, XlaOp, computation_of, emit, handles, rejected
from hlokit.errors import BuildError, ShapeError
from hlokit.hlo.computation import Computation
from hlokit.hlo.op import infer_shape
from hlokit.ops import batch_norm as norms
from hlokit.ops.reduction import Reduce, check_reducer
from hlokit.ops.scan import Scan, without_dimension
from hlokit.ops.windows import ReduceWindow, SelectAndScatter
from hlokit.types.integers import dims
from hlokit.types.shape import Shape
from hlokit.types.window import Window, same_padding

__all__ = [
    "batch_norm_grad",
    "batch_norm_inference",
    "batch_norm_training",
    "make_padding",
    "reduce",
    "reduce_all",
    "reduce_window",
    "reduce_window_with_general_padding",
    "scan",
    "select_and_scatter",
    "select_and_scatter_with_general_padding",
]


def reduce(
    operands: XlaOp | Sequence[Any], init_values: Any, computation: ComputationLike, dimensions: Sequence[int]
) -> XlaOp:
    """Combines the elements along some dimensions with a computation, in row-major order from an initial value on.

    Rules REDUCE, REDUCER.

    Parameters
    ----------
    operands : XlaOp or sequence of XlaOp
        An array, or N arrays of the same dimensions.
    init_values : XlaOp or sequence of XlaOp, numbers or arrays
        For each operand a scalar of its element type.
    computation : Computation, HloModule or callable
        Takes (N accumulated, N new) scalars to N scalars.
    dimensions : sequence of int
        The dimensions along which elements are combined.

    Returns
    -------
    XlaOp
        An array of the other dimensions; a tuple of N for a sequence of operands.

    Raises
    ------
    ShapeError
        A constraint does not hold: REDUCE-2 to REDUCE-5, REDUCE-7, REDUCER-1, REDUCER-2, REDUCER-4, REDUCER-5.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.reduce(b.constant([[1, 2, 3], [4, 5, 6]]), 0, hk.add, [1])))
    array([ 6, 15], dtype=int32)
    """
    operands, inits, scalars = _reduced(operands, init_values, "REDUCE-2", "reduce")
    called = computation_of(computation, scalars + scalars, operands[0].builder)
    check_types(called, operands, inits, "reduce")
    return emit(Reduce(dims(dimensions, "dimensions")), *operands, *inits, called=(called,))


def reduce_all(operand: XlaOp, init: Any, computation: ComputationLike) -> XlaOp:
    """Combines all elements to a scalar (BEY-48). Rules REDUCE.

    Parameters
    ----------
    operand : XlaOp
        An array.
    init : XlaOp, number or array
        A scalar of the operand's element type.
    computation : Computation, HloModule or callable
        Takes (accumulated, new) scalars to a scalar.

    Returns
    -------
    XlaOp
        A scalar.

    Raises
    ------
    ShapeError
        A constraint does not hold: REDUCE-2 to REDUCE-5, REDUCE-7, REDUCER-1, REDUCER-2.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.reduce_all(b.constant([[1, 2, 3], [4, 5, 6]]), 0, hk.add)))
    array(21, dtype=int32)
    """
    return reduce(operand, init, computation, range(operand.rank))


def reduce_window(
    operands: XlaOp | Sequence[Any],
    init_values: Any,
    computation: ComputationLike,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: str,
) -> XlaOp:
    """Combines the elements in a window at each of its positions; padding "SAME" or "VALID". Arguments as for `reduce`.

    Rules RWIN, WIN.

    Parameters
    ----------
    operands : XlaOp or sequence of XlaOp
        An array, or N arrays of the same dimensions.
    init_values : XlaOp or sequence of XlaOp, numbers or arrays
        For each operand a scalar of its element type.
    computation : Computation, HloModule or callable
        Takes (N accumulated, N new) scalars to N scalars.

    Returns
    -------
    XlaOp
        An array with an element for each position of the window; a tuple of N for a sequence of operands.

    Raises
    ------
    ShapeError
        A constraint does not hold: RWIN-2 to RWIN-4, WIN-2, WIN-3, WIN-6.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.reduce_window(b.constant([1, 2, 3, 4]), 0, hk.add, [2], [1], "VALID")))
    array([3, 5, 7], dtype=int32)
    """
    first = _reduced(operands, init_values, "RWIN-2", "reduce-window")[0][0]
    strides = window_strides if len(window_strides) else [1] * first.rank
    pairs = made(make_padding, "reduce-window", (first,), first.shape.dimensions, window_dimensions, strides, padding)
    return reduce_window_with_general_padding(
        operands, init_values, computation, window_dimensions, window_strides, (), (), pairs
    )


def reduce_window_with_general_padding(
    operands: XlaOp | Sequence[Any],
    init_values: Any,
    computation: ComputationLike,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    base_dilations: Sequence[int],
    window_dilations: Sequence[int],
    padding: Sequence[tuple[int, int]],
) -> XlaOp:
    """`reduce_window` with a (low, high) padding per dimension and dilations; an empty list means the default.

    Rules RWIN, WIN.

    Parameters
    ----------
    operands : XlaOp or sequence of XlaOp
        An array, or N arrays of the same dimensions.
    init_values : XlaOp or sequence of XlaOp, numbers or arrays
        For each operand a scalar of its element type.
    computation : Computation, HloModule or callable
        Takes (N accumulated, N new) scalars to N scalars.
    base_dilations : sequence of int
        The distance between elements of the operand, for each dimension. Empty: 1.
    window_dilations : sequence of int
        The distance between elements of the window, for each dimension. Empty: 1.
    padding : sequence of (int, int)
        (low, high) for each dimension: positions before and after it, which are skipped (RWIN-6); negative ones remove
        elements. Empty: none.

    Returns
    -------
    XlaOp
        An array with an element for each position of the window; a tuple of N for a sequence of operands.

    Raises
    ------
    ShapeError
        A constraint does not hold: RWIN-2 to RWIN-4, WIN-2, WIN-3, WIN-6.

    Examples
    --------
    >>> b = hk.Builder()
    >>> result = hk.reduce_window_with_general_padding(b.constant([1, 2, 3]), 0, hk.add, [3], [1], [], [], [(2, 0)])
    >>> hk.evaluate(b.build(result))
    array([1, 3, 6], dtype=int32)
    """
    operands, inits, scalars = _reduced(operands, init_values, "RWIN-2", "reduce-window")
    lists = (window_dimensions, window_strides, padding, base_dilations, window_dilations)
    window = made(Window.make, "reduce-window", operands, *lists)
    called = computation_of(computation, scalars + scalars, operands[0].builder)
    check_types(called, operands, inits, "reduce-window")
    return emit(ReduceWindow(window), *operands, *inits, called=(called,))


def select_and_scatter(
    operand: XlaOp,
    select: ComputationLike,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: str,
    source: Any,
    init_value: Any,
    scatter: ComputationLike,
) -> XlaOp:
    """Each window position picks an operand element by `select`; the source element is scattered there.

    operand, result [...]; source: one element per window position; padding: SAME or VALID.

    Rules SAS.

    Parameters
    ----------
    operand : XlaOp
        An array.
    select : Computation, HloModule or callable
        Takes (chosen, new) scalars to pred[]: whether the chosen element stays.
    source : XlaOp, number or array
        An array of the operand's element type, with an element for each position of the window.
    init_value : XlaOp, number or array
        A scalar of the operand's element type, which the result begins with.
    scatter : Computation, HloModule or callable
        Takes (current, source) scalars to a scalar.

    Returns
    -------
    XlaOp
        An array of the operand's shape.

    Raises
    ------
    ShapeError
        A constraint does not hold: SAS-2 to SAS-6.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, source = b.constant([1, 5, 2, 3]), b.constant([10, 20])
    >>> hk.evaluate(b.build(hk.select_and_scatter(x, hk.ge, [2], [2], "VALID", source, 0, hk.add)))
    array([ 0, 10,  0, 20], dtype=int32)
    """
    sizes, strides = operand.shape.dimensions, window_strides if len(window_strides) else [1] * operand.rank
    pairs = made(make_padding, "select-and-scatter", (operand,), sizes, window_dimensions, strides, padding)
    return select_and_scatter_with_general_padding(
        operand, select, window_dimensions, window_strides, pairs, source, init_value, scatter
    )


def select_and_scatter_with_general_padding(
    operand: XlaOp,
    select: ComputationLike,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    source: Any,
    init_value: Any,
    scatter: ComputationLike,
) -> XlaOp:
    """`select_and_scatter` with a (low, high) padding per dimension (BEY-49). Rules SAS.

    Parameters
    ----------
    operand : XlaOp
        An array.
    select : Computation, HloModule or callable
        Takes (chosen, new) scalars to pred[]: whether the chosen element stays.
    padding : sequence of (int, int)
        (low, high) for each dimension. Empty: none.
    source : XlaOp, number or array
        An array of the operand's element type, with an element for each position of the window.
    init_value : XlaOp, number or array
        A scalar of the operand's element type, which the result begins with.
    scatter : Computation, HloModule or callable
        Takes (current, source) scalars to a scalar.

    Returns
    -------
    XlaOp
        An array of the operand's shape.

    Raises
    ------
    ShapeError
        A constraint does not hold: SAS-2 to SAS-6, BEY-49.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, source = b.constant([1, 5, 2, 3]), b.constant([10, 20])
    >>> result = hk.select_and_scatter_with_general_padding(x, hk.ge, [2], [2], [(0, 0)], source, 0, hk.add)
    >>> hk.evaluate(b.build(result))
    array([ 0, 10,  0, 20], dtype=int32)
    """
    window = made(Window.make, "select-and-scatter", (operand,), window_dimensions, window_strides, padding)
    scalars = [operand.dtype[()]] * 2
    called = [computation_of(c, scalars, operand.builder) for c in (select, scatter)]
    return emit(SelectAndScatter(window), operand, source, init_value, called=called)


def make_padding(
    input_dimensions: Sequence[int], window_dimensions: Sequence[int], window_strides: Sequence[int], padding: str
) -> tuple[tuple[int, int], ...]:
    """(low, high) per dimension for "SAME" or "VALID" padding (WIN-5..7).

    Parameters
    ----------
    input_dimensions : sequence of int
        The sizes of the operand's dimensions.
    window_dimensions : sequence of int
        The window's sizes, one for each.
    padding : str
        "SAME" or "VALID".

    Returns
    -------
    tuple of (int, int)
        (low, high) for each dimension.

    Raises
    ------
    ShapeError
        A constraint does not hold: WIN-6.

    Examples
    --------
    >>> hk.make_padding([5], [3], [2], "SAME")
    ((1, 1),)
    """
    if not isinstance(padding, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ShapeError("WIN-5", "padding", repr(padding), "SAME or VALID")
    if padding.upper() == "SAME":
        return same_padding(input_dimensions, window_dimensions, window_strides)
    if padding.upper() != "VALID":
        raise ShapeError("WIN-5", "padding", padding, "SAME or VALID")
    if not len(input_dimensions) == len(window_dimensions) == len(window_strides):
        lengths = (len(input_dimensions), len(window_dimensions), len(window_strides))
        raise ShapeError("WIN-6", "padding lists", lengths, "equal lengths")
    return ((0, 0),) * len(input_dimensions)


def batch_norm_training(operand: XlaOp, scale: Any, offset: Any, epsilon: float, feature_index: int) -> XlaOp:
    """Normalises each feature by its own mean and variance; returns (output, batch_mean [F], batch_var [F]).

    scale, offset [F] with F the size of dimension `feature_index`. Rules BNT.

    Parameters
    ----------
    operand : XlaOp
        A floating array.

    Returns
    -------
    XlaOp
        The tuple (output, batch_mean, batch_var), of the operand's shape, [F] and [F].

    Raises
    ------
    ShapeError
        A constraint does not hold: BNT-3 to BNT-5.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.constant([[1.0, 10.0], [3.0, 10.0]])
    >>> result = hk.batch_norm_training(x, b.constant([1.0, 1.0]), b.constant([0.0, 5.0]), 1e-6, 1)
    >>> output, mean, variance = hk.evaluate(b.build(result))
    >>> output.round(3), mean, variance
    (array([[-1.,  5.],
           [ 1.,  5.]], dtype=float32), array([ 2., 10.], dtype=float32), array([1., 0.], dtype=float32))
    """
    return emit(norms.BatchNormTraining(epsilon, feature_index), operand, scale, offset)


def batch_norm_inference(
    operand: XlaOp, scale: Any, offset: Any, mean: Any, variance: Any, epsilon: float, feature_index: int
) -> XlaOp:
    """Normalises each feature by a given mean and variance, [F] each. Rules BNI.

    Parameters
    ----------
    operand : XlaOp
        A floating array.
    mean : XlaOp, number or array
        The mean of each feature, [F].
    variance : XlaOp, number or array
        The variance of each feature, [F].

    Returns
    -------
    XlaOp
        The normalised array, of the operand's shape and element type.

    Raises
    ------
    ShapeError
        A constraint does not hold: BNI-3.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, ones, zeros = b.constant([[1.0, 10.0], [3.0, 10.0]]), b.constant([1.0, 1.0]), b.constant([0.0, 0.0])
    >>> result = hk.batch_norm_inference(x, ones, zeros, b.constant([2.0, 8.0]), b.constant([4.0, 4.0]), 0.0, 1)
    >>> hk.evaluate(b.build(result))
    array([[-0.5,  1. ],
           [ 0.5,  1. ]], dtype=float32)
    """
    return emit(norms.BatchNormInference(epsilon, feature_index), operand, scale, offset, mean, variance)


def batch_norm_grad(
    operand: XlaOp, scale: Any, batch_mean: Any, batch_var: Any, grad_output: Any, epsilon: float, feature_index: int
) -> XlaOp:
    """Gradients of `batch_norm_training`: (grad_operand, grad_scale [F], grad_offset [F]).

    Rules BNG.

    Parameters
    ----------
    operand : XlaOp
        The operand of batch_norm_training.
    batch_mean : XlaOp, number or array
        The mean of each feature, [F].
    batch_var : XlaOp, number or array
        The variance of each feature, [F].
    grad_output : XlaOp, number or array
        The gradient of the normalised array, of the operand's shape and element type.

    Returns
    -------
    XlaOp
        The tuple (grad_operand, grad_scale, grad_offset), of the operand's shape, [F] and [F].

    Raises
    ------
    ShapeError
        A constraint does not hold: BNG-4, BNG-5.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, one, gradient = b.constant([[1.0], [3.0]]), b.constant([1.0]), b.constant([[1.0], [0.0]])
    >>> result = hk.batch_norm_grad(x, one, b.constant([2.0]), one, gradient, 0.0, 1)
    >>> [part.tolist() for part in hk.evaluate(b.build(result))]
    [[[0.0], [0.0]], [-1.0], [1.0]]
    """
    return emit(norms.BatchNormGrad(epsilon, feature_index), operand, scale, batch_mean, batch_var, grad_output)


def scan(
    inputs: Sequence[XlaOp],
    inits: Sequence[Any],
    computation: ComputationLike,
    scan_dimension: int,
    scan_dimension_size: int | None = None,
    is_reverse: bool = False,
    is_associative: bool = False,
) -> XlaOp:
    """A loop over the slices of `inputs` along a dimension, with carried values (BEY-50).

    Parameters
    ----------
    inputs : sequence of XlaOp
        Arrays of one size in `scan_dimension`.
    inits : XlaOp or number, each
        The carried values for the first iteration.
    computation : Computation, HloModule or callable
        Takes (a slice of each input, carried values) to (outputs, new carried values); slices lack the dimension.
    scan_dimension : int
        The dimension along which the loop runs.
    scan_dimension_size : int, optional
        The size of that dimension, needed only without inputs.
    is_reverse : bool, optional
        Whether the loop starts at the last slice.
    is_associative : bool, optional
        A promise that the computation is associative.

    Returns
    -------
    XlaOp
        A tuple: for each output the array of its values along the dimension, then the carried values after the last
        run.

    Raises
    ------
    ShapeError
        The computation does not match the inputs and carried values (BEY-50).

    Examples
    --------
    >>> b = hk.Builder()
    >>> result = hk.scan([b.constant([1, 2, 3])], [b.constant(0)], lambda x, total: (total + x, total + x), 0)
    >>> hk.evaluate(b.build(result))
    (array([1, 3, 6], dtype=int32), array(6, dtype=int32))
    """
    operands = handles(*inputs, *inits)
    arrays, carries = operands[: len(inputs)], operands[len(inputs) :]
    for array in arrays:
        if not 0 <= scan_dimension < array.rank:
            error = ShapeError("BEY-50", "scan_dimension", scan_dimension, f"a dimension of {array.shape}")
            raise rejected(error, "scan", *operands)
    size = arrays[0].shape.dimensions[scan_dimension] if arrays else scan_dimension_size
    if size is None or (scan_dimension_size is not None and size != scan_dimension_size):
        error = ShapeError("BEY-50", "scan_dimension_size", scan_dimension_size, "the inputs' size, if there are any")
        raise rejected(error, "scan", *operands)
    parameters = [without_dimension(a.shape, scan_dimension) for a in arrays] + [c.shape for c in carries]
    called = computation_of(computation, parameters, operands[0].builder)
    declared = _scanned_shape(called.root.shape, scan_dimension, size)
    draft = Scan(scan_dimension, len(carries), is_reverse, is_associative, declared)
    shapes, called_shapes = [o.shape for o in operands], [("to_apply", called.program_shape)]
    shape = made(infer_shape, "scan", operands, draft, shapes, called_shapes)
    return emit(draft.replace(scan_shape=shape), *operands, called=(called,))


def _scanned_shape(result: Shape, dimension: int, size: int) -> Shape:
    """A shape whose first leaf says how long the scanned dimension is."""
    output = result.elements[0] if result.is_tuple and result.elements else result
    sizes = output.dimensions
    return output.with_dimensions([*sizes[:dimension], size, *sizes[dimension:]]) if output.is_array else output


def check_types(reducer: Computation, operands: Sequence[XlaOp], inits: Sequence[XlaOp], opcode: str) -> None:
    """REDUCER-4, REDUCER-5: builders mix no floating types, as text may (REDUCER-7). `inits`: none for a scatter."""
    types = [o.dtype for o in operands]
    taken = [*(p.shape.dtype for p in reducer.parameters), *(i.dtype for i in inits)]
    if all(a is b or not (a.is_floating and b.is_floating) for a, b in zip(taken, types * 3)):
        return
    try:
        shapes = [o.shape for o in operands]
        starts = tuple(i.shape for i in inits) or tuple(shape.dtype[()] for shape in shapes)
        check_reducer(reducer.program_shape, shapes, starts)
    except ShapeError as error:
        raise rejected(error, opcode, *operands, *inits) from None


def _reduced(
    operands: Any, init_values: Any, label: str, opcode: str
) -> tuple[Sequence[XlaOp], list[XlaOp], list[Shape]]:
    """Operands and init values as lists of handles, and the operands' scalar shapes."""
    listed: list[Any] = [operands] if isinstance(operands, XlaOp) else list(operands)
    inits: list[Any] = [*init_values] if isinstance(init_values, (list, tuple)) else [init_values]
    if not listed:
        raise BuildError(f"{opcode} needs at least one operand", label)
    arrays = handles(*listed)
    if len(arrays) != len(inits):
        raise rejected(ShapeError(label, "init values", len(inits), len(arrays)), opcode, *arrays)
    for array in arrays:
        if not array.shape.is_array:
            raise rejected(ShapeError(label, "operand", array.shape, "an array"), opcode, *arrays)
    builder, scalars = arrays[0].builder, [a.dtype[()] for a in arrays]
    return arrays, [builder.handle(init, array) for init, array in zip(inits, arrays, strict=True)], scalars


Made = TypeVar("Made")


def made(make: Callable[..., Made], opcode: str, operands: Sequence[XlaOp], *arguments: Any) -> Made:
    """`make(*arguments)`, a part of an op to come: its errors are that op's."""
    try:
        return make(*arguments)
    except ShapeError as error:
        raise rejected(error, opcode, *operands) from None
