"""Op functions for collectives.

What they share: `replica_groups` lists groups of device numbers (or is a ReplicaGroups); empty means one group of
all. `channel_id` and `use_global_device_ids` say what the numbers mean (GRP-4). `layout` fixes the result's layout.
All raise ShapeError for groups that are none (GRP-2, GRP-3, GRP-5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from hlokit.builder.communication import ChannelHandle
from hlokit.builder.control import tuple_
from hlokit.builder.core import Builder, ComputationLike, XlaOp, checks_as, computation_of, emit
from hlokit.errors import MisuseError, ShapeError
from hlokit.hlo.op import check
from hlokit.ops.collectives import AllGather, AllReduce, CollectiveReduce, PartitionId, ReduceScatter, ReplicaId
from hlokit.ops.exchanges import AllToAll, CollectiveBroadcast, CollectivePermute, RaggedAllToAll
from hlokit.types.groups import ReplicaGroups
from hlokit.types.layout import Layout
from hlokit.types.shape import Shape

__all__ = [
    "all_gather",
    "all_gather_tuple",
    "all_reduce",
    "all_reduce_tuple",
    "all_to_all",
    "all_to_all_tuple",
    "collective_broadcast",
    "collective_permute",
    "collective_reduce",
    "cross_replica_sum",
    "multi_collective_permute",
    "partition_id",
    "ragged_all_to_all",
    "reduce_scatter",
    "replica_id",
]

Groups: TypeAlias = "ReplicaGroups | Iterable[Iterable[int]]"
Channel: TypeAlias = "int | ChannelHandle | None"


def replica_id(builder: Builder) -> XlaOp:
    """The number of the replica that runs the program, u32[] (REPID rules).

    Returns
    -------
    XlaOp
        A u32[].

    Raises
    ------
    BuildError
        The builder has been built (BUILDER-3).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.replica_id(b)), [], [], replicas=2)
    [array(0, dtype=uint32), array(1, dtype=uint32)]
    """
    return builder.emit(ReplicaId(), [])


def partition_id(builder: Builder) -> XlaOp:
    """The number of the partition that runs the program, u32[] (BEY-66).

    Returns
    -------
    XlaOp
        A u32[].

    Raises
    ------
    BuildError
        The builder has been built (BUILDER-3).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.partition_id(b)), [], [], partitions=2)
    [array(0, dtype=uint32), array(1, dtype=uint32)]
    """
    return builder.emit(PartitionId(), [])


@checks_as("all-gather")
def all_gather(
    operand: XlaOp,
    all_gather_dimension: int,
    shard_count: int,
    replica_groups: Groups = (),
    channel_id: Channel = None,
    layout: Layout | None = None,
    use_global_device_ids: bool = False,
) -> XlaOp:
    """The members' operands concatenated along a dimension; a tuple operand gathers each element (AGATHER rules).

    `shard_count` is the size of the groups.

    Parameters
    ----------
    operand : XlaOp
        An array, or a tuple of arrays.
    all_gather_dimension : int
        The dimension along which the members' operands are concatenated.

    Returns
    -------
    XlaOp
        The operand's shape, in which that dimension is `shard_count` times as large; of a tuple, the tuple of such
        arrays.

    Raises
    ------
    ShapeError
        A constraint does not hold: AGATHER-3, AGATHER-4, GRP-2, GRP-3, GRP-5.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.f32[2])
    >>> module = b.build(hk.all_gather(x, 0, 2))
    >>> hk.evaluate(module, [[1.0, 2.5]], [[3.0, 5.25]], replicas=2)
    [array([1.  , 2.5 , 3.  , 5.25], dtype=float32), array([1.  , 2.5 , 3.  , 5.25], dtype=float32)]
    """
    arguments = (all_gather_dimension, shard_count, replica_groups, channel_id, layout, use_global_device_ids)
    if operand.shape.is_tuple:
        return all_gather_tuple(list(operand), *arguments)
    return _all_gather([operand], *arguments)


@checks_as("all-gather")
def all_gather_tuple(
    operands: Sequence[XlaOp],
    all_gather_dimension: int,
    shard_count: int,
    replica_groups: Groups = (),
    channel_id: Channel = None,
    layout: Layout | None = None,
    use_global_device_ids: bool = False,
) -> XlaOp:
    """all_gather of several operands at once; a tuple of the results (BEY-60).

    Parameters
    ----------
    operands : sequence of XlaOp
        The arrays.
    all_gather_dimension : int
        The dimension along which the members' operands are concatenated.

    Returns
    -------
    XlaOp
        A tuple with the result of all_gather for each operand.

    Raises
    ------
    ShapeError
        A constraint does not hold: AGATHER-3, AGATHER-4, GRP-2, GRP-3, GRP-5.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.f32[1])
    >>> module = b.build(hk.all_gather_tuple([x, x + 10.0], 0, 2))
    >>> hk.evaluate(module, [[1.0]], [[2.0]], replicas=2)[0]
    (array([1., 2.], dtype=float32), array([11., 12.], dtype=float32))
    """
    arguments = (all_gather_dimension, shard_count, replica_groups, channel_id, layout, use_global_device_ids)
    return _as_tuple(_all_gather(operands, *arguments), len(operands))


@checks_as("all-reduce")
def all_reduce(
    operand: XlaOp,
    computation: ComputationLike,
    replica_groups: Groups = (),
    channel_id: Channel = None,
    shape_with_layout: Shape | None = None,
    use_global_device_ids: bool = False,
) -> XlaOp:
    """The members' operands combined elementwise, in group order; a tuple operand reduces each element (ARED rules).

    `computation` takes two scalars of the element type to one.

    Parameters
    ----------
    operand : XlaOp
        An array, or a tuple of arrays of one element type.

    Returns
    -------
    XlaOp
        The combined value, of the operand's shape, on every member.

    Raises
    ------
    ShapeError
        A constraint does not hold: ARED-4, ARED-6, REDUCER-1, REDUCER-2, GRP-2, GRP-3, GRP-5.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.f32[2])
    >>> module = b.build(hk.all_reduce(x, hk.add))
    >>> hk.evaluate(module, [[1.0, 2.5]], [[3.0, 5.25]], replicas=2)
    [array([4.  , 7.75], dtype=float32), array([4.  , 7.75], dtype=float32)]
    """
    arguments = (computation, replica_groups, channel_id, shape_with_layout, use_global_device_ids)
    if operand.shape.is_tuple:
        return all_reduce_tuple(_elements(operand, "ARED-4"), *arguments)
    return _all_reduce([operand], *arguments)


@checks_as("all-reduce")
def all_reduce_tuple(
    operands: Sequence[XlaOp],
    computation: ComputationLike,
    replica_groups: Groups = (),
    channel_id: Channel = None,
    shape_with_layout: Shape | None = None,
    use_global_device_ids: bool = False,
) -> XlaOp:
    """all_reduce of several operands of one element type at once; a tuple of the results (BEY-60).

    Parameters
    ----------
    operands : sequence of XlaOp
        The arrays, of one element type.

    Returns
    -------
    XlaOp
        A tuple with the result of all_reduce for each operand.

    Raises
    ------
    ShapeError
        A constraint does not hold: ARED-4, ARED-6, REDUCER-1, REDUCER-2, GRP-2, GRP-3, GRP-5.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.f32[1])
    >>> module = b.build(hk.all_reduce_tuple([x, x * 10.0], hk.add))
    >>> hk.evaluate(module, [[1.0]], [[2.0]], replicas=2)[0]
    (array([3.], dtype=float32), array([30.], dtype=float32))
    """
    if shape_with_layout is not None and len(operands) == 1:
        check(len(shape_with_layout.elements) == 1, "BEY-60", "shape_with_layout", shape_with_layout, "a tuple of one")
        shape_with_layout = shape_with_layout.elements[0]
    arguments = (computation, replica_groups, channel_id, shape_with_layout, use_global_device_ids)
    return _as_tuple(_all_reduce(operands, *arguments), len(operands))


@checks_as("all-reduce")
def cross_replica_sum(operand: XlaOp, replica_groups: Groups = ()) -> XlaOp:
    """all_reduce by addition, by logical or for pred (CRSUM rules).

    Parameters
    ----------
    operand : XlaOp
        An array, or a tuple of arrays.

    Returns
    -------
    XlaOp
        The sum over the members of each group, of the operand's shape.

    Raises
    ------
    ShapeError
        A constraint does not hold: CRSUM-2.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.f32[2])
    >>> module = b.build(hk.cross_replica_sum(x))
    >>> hk.evaluate(module, [[1.0, 2.5]], [[3.0, 5.25]], replicas=2)
    [array([4.  , 7.75], dtype=float32), array([4.  , 7.75], dtype=float32)]
    """
    from hlokit.builder.elementwise import add

    if operand.shape.is_tuple and not operand.shape.elements:
        raise ShapeError("CRSUM-2", "operand", operand.shape, "not an empty tuple")

    def sum(x: XlaOp, y: XlaOp) -> XlaOp:
        return add(x, y)

    return all_reduce(operand, sum, replica_groups)


@checks_as("reduce-scatter")
def reduce_scatter(
    operand: XlaOp,
    computation: ComputationLike,
    scatter_dimension: int,
    shard_count: int,
    replica_groups: Groups = (),
    channel_id: Channel = None,
    layout: Layout | None = None,
    use_global_device_ids: bool = False,
) -> XlaOp:
    """Block i, along a dimension, of the all_reduce result, for member number i of the group (RSCAT rules).

    `shard_count` is the size of the groups; a tuple operand is treated element by element.

    Parameters
    ----------
    operand : XlaOp
        An array, or a tuple of arrays.
    scatter_dimension : int
        The dimension that is cut into blocks; `shard_count` divides its size.

    Returns
    -------
    XlaOp
        The operand's shape, in which this dimension is `shard_count` times smaller.

    Raises
    ------
    ShapeError
        A constraint does not hold: RSCAT-3 to RSCAT-6, RSCAT-10, REDUCER-1, REDUCER-2, GRP-2, GRP-3, GRP-5.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.f32[2])
    >>> module = b.build(hk.reduce_scatter(x, hk.add, 0, 2))
    >>> hk.evaluate(module, [[1.0, 2.5]], [[3.0, 5.25]], replicas=2)
    [array([4.], dtype=float32), array([7.75], dtype=float32)]
    """
    operands = _elements(operand, "RSCAT-7") if operand.shape.is_tuple else [operand]
    d = scatter_dimension
    blocks = [_divided(o.shape, d, shard_count, ("RSCAT-5", "RSCAT-4", "RSCAT-3")) for o in operands]
    result = _result(blocks, layout)
    groups, fixed = _groups(replica_groups), layout is not None
    op = ReduceScatter(_number(channel_id), groups, fixed, use_global_device_ids, d, result)
    handle = emit(op, *operands, called=[_combiner(operands, computation, "RSCAT-7")], shape=result)
    return _as_tuple(handle, len(operands)) if operand.shape.is_tuple else handle


@checks_as("all-to-all")
def all_to_all(
    operand: XlaOp,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    replica_groups: Groups = (),
    layout: Layout | None = None,
    channel_id: Channel = None,
) -> XlaOp:
    """Cuts the operand into blocks along one dimension, sends block j to member j, joins received blocks along another.

    Shape: shape[split] /= split_count, then shape[concat] *= split_count. `split_count` is the size of the groups.

    Parameters
    ----------
    operand : XlaOp
        An array.
    split_dimension : int
        The dimension that is cut into blocks; `split_count` divides its size.
    concat_dimension : int
        The dimension that the received blocks are joined along.
    split_count : int
        The number of blocks: the size of each group.

    Returns
    -------
    XlaOp
        An array: `split_dimension` is `split_count` times smaller, then `concat_dimension` as many times larger.

    Raises
    ------
    ShapeError
        A constraint does not hold: A2A-3, A2A-4, A2A-5, A2A-6, GRP-2, GRP-3, GRP-5.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.f32[2])
    >>> module = b.build(hk.all_to_all(x, 0, 0, 2))
    >>> hk.evaluate(module, [[1.0, 2.5]], [[3.0, 5.25]], replicas=2)
    [array([1., 3.], dtype=float32), array([2.5 , 5.25], dtype=float32)]
    """
    shape = operand.shape
    if not shape.is_array:
        raise ShapeError("A2A-6", "operand", shape, "an array")
    if not 0 <= concat_dimension < shape.rank:
        raise ShapeError("A2A-3", "concat_dimension", concat_dimension, f"in [0, {shape.rank})")
    block = _divided(shape, split_dimension, split_count, ("A2A-3", "A2A-5", "A2A-4"))
    groups = _groups(replica_groups)
    if groups.group_size not in (None, split_count):
        raise ShapeError("A2A-5", "split_count", split_count, groups.group_size)
    op = AllToAll(_number(channel_id), groups, layout is not None, split_dimension)
    exchanged = emit(op, operand, shape=shape if layout is None else shape.with_layout(layout))
    if split_dimension == concat_dimension:
        return exchanged
    return _moved_blocks(exchanged, block, split_dimension, concat_dimension, split_count)


@checks_as("all-to-all")
def all_to_all_tuple(
    operands: XlaOp | Sequence[XlaOp],
    *arguments: Any,
    replica_groups: Groups = (),
    layout: Layout | None = None,
    channel_id: Channel = None,
) -> XlaOp:
    """Sends operand i to member i; a tuple with a part from each member (BEY-61).

    all_to_all_tuple(operands, replica_groups, layout, channel_id), or all_to_all_tuple(operand, split_dimension,
    concat_dimension, split_count, replica_groups, layout, channel_id): cuts the operand into a tuple first and joins
    the parts.

    Parameters
    ----------
    operands : XlaOp or sequence of XlaOp
        One array for each member, of one shape; or one array, which is cut.
    arguments : Any
        Either (replica_groups, layout, channel_id), or (split_dimension, concat_dimension, split_count, replica_groups,
        layout, channel_id).

    Returns
    -------
    XlaOp
        A tuple with a part from each member; the joined array in the second form.

    Raises
    ------
    ShapeError
        A constraint does not hold: A2A-3, A2A-4, A2A-5, A2A-6, GRP-2, GRP-3, GRP-5.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.f32[1])
    >>> module = b.build(hk.all_to_all_tuple([x, x + 10.0], replica_groups=[[0, 1]]))
    >>> hk.evaluate(module, [[1.0]], [[2.0]], replicas=2)[0]
    (array([1.], dtype=float32), array([2.], dtype=float32))
    """
    if isinstance(operands, XlaOp):
        if len(arguments) < 3:
            found = f"found {len(arguments)} arguments behind the operand"
            raise MisuseError(f"all_to_all_tuple: {found}, expected split_dimension, concat_dimension and split_count")
        split, concat, count, *rest = arguments
        given = _merged(rest, replica_groups, layout, channel_id)
        return _all_to_all_of_slices(operands, split, concat, count, *given)
    groups, layout, channel = _merged(arguments, replica_groups, layout, channel_id)
    shapes = [o.shape if layout is None else o.shape.with_layout(layout) for o in operands]
    op = AllToAll(_number(channel), _groups(groups), layout is not None, None)
    return emit(op, *operands, shape=Shape.tuple(shapes))


@checks_as("collective-permute")
def collective_permute(
    operand: XlaOp, source_target_pairs: Iterable[tuple[int, int]], channel_id: Channel = None
) -> XlaOp:
    """For each (source, target), the target's result is the source's operand (CPERM rules).
    On devices that are not a target the result is zero.

    Parameters
    ----------
    operand : XlaOp
        An array.
    source_target_pairs : sequence of (int, int)
        Pairs of device ids; no source and no target occurs twice.

    Returns
    -------
    XlaOp
        An array of the operand's shape.

    Raises
    ------
    ShapeError
        A source or target occurs twice (CPERM-4), an id is out of range (CPERM-5), or the operand is not an array
        (CPERM-8).

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.f32[2])
    >>> module = b.build(hk.collective_permute(x, [(0, 1), (1, 0)]))
    >>> hk.evaluate(module, [[1.0, 2.5]], [[3.0, 5.25]], replicas=2)
    [array([3.  , 5.25], dtype=float32), array([1. , 2.5], dtype=float32)]
    """
    return multi_collective_permute([operand], source_target_pairs, channel_id)


@checks_as("collective-permute")
def multi_collective_permute(
    operands: Sequence[XlaOp], source_target_pairs: Iterable[tuple[int, int]], channel_id: Channel = None
) -> XlaOp:
    """collective_permute of several operands at once; a tuple of the results, if there are several (BEY-64).

    Parameters
    ----------
    operands : sequence of XlaOp
        The arrays.
    source_target_pairs : sequence of (int, int)
        Pairs of device ids; no source and no target occurs twice.

    Returns
    -------
    XlaOp
        The array, or a tuple of as many arrays as operands.

    Raises
    ------
    ShapeError
        A source or target is given twice (CPERM-4), an id is out of range (CPERM-5), or an operand is not an array
        (CPERM-8).

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.f32[1])
    >>> module = b.build(hk.multi_collective_permute([x, -x], [(0, 1), (1, 0)]))
    >>> hk.evaluate(module, [[1.0]], [[2.0]], replicas=2)[0]
    (array([2.], dtype=float32), array([-2.], dtype=float32))
    """
    return emit(CollectivePermute(_number(channel_id), tuple(source_target_pairs), ()), *operands)


def collective_broadcast(
    operand: XlaOp | Sequence[XlaOp],
    replica_groups: Groups = (),
    channel_id: Channel = None,
    has_dynamic_root: bool = False,
) -> XlaOp:
    """The operand (or operands) of the first member of each group; zeros for members of no group (BEY-63).

    With `has_dynamic_root` the last operand is a vector s32[n] that gives the member whose
    value is used, for each of the n other operands.

    Parameters
    ----------
    operand : XlaOp or sequence of XlaOp
        An array or tuple, or a sequence of arrays.

    Returns
    -------
    XlaOp
        The value of the first member of each group, of the operand's shape; zeros on devices of no group.

    Raises
    ------
    ShapeError
        A constraint does not hold: GRP-2, GRP-3, GRP-5, BEY-63.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.f32[2])
    >>> module = b.build(hk.collective_broadcast(x, [[0, 1]]))
    >>> hk.evaluate(module, [[1.0, 2.5]], [[3.0, 5.25]], replicas=2)
    [array([1. , 2.5], dtype=float32), array([1. , 2.5], dtype=float32)]
    """
    operands = [operand] if isinstance(operand, XlaOp) else list(operand)
    return emit(CollectiveBroadcast(_number(channel_id), _groups(replica_groups), has_dynamic_root), *operands)


def collective_reduce(
    operand: XlaOp | Sequence[XlaOp],
    computation: ComputationLike,
    replica_groups: Groups = (),
    channel_id: Channel = None,
    use_global_device_ids: bool = False,
    has_dynamic_root: bool = False,
) -> XlaOp:
    """The result of all_reduce for the first member of each group; zeros for the others (BEY-82).

    With `has_dynamic_root` the last operand is a vector s32[n] that gives the member that
    receives the result, for each of the n other operands.

    Parameters
    ----------
    operand : XlaOp or sequence of XlaOp
        An array or tuple, or a sequence of arrays.

    Returns
    -------
    XlaOp
        The combined value on the first member of each group, zeros on the others; of the operand's shape.

    Raises
    ------
    ShapeError
        A constraint does not hold: ARED-4, ARED-6, REDUCER-1, REDUCER-2, GRP-2, GRP-3, GRP-5.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.f32[2])
    >>> module = b.build(hk.collective_reduce(x, hk.add))
    >>> hk.evaluate(module, [[1.0, 2.5]], [[3.0, 5.25]], replicas=2)
    [array([4.  , 7.75], dtype=float32), array([0., 0.], dtype=float32)]
    """
    operands = [operand] if isinstance(operand, XlaOp) else list(operand)
    data = operands[:-1] if has_dynamic_root else operands
    op = CollectiveReduce(
        _number(channel_id), _groups(replica_groups), False, use_global_device_ids, has_dynamic_root
    )
    return emit(op, *operands, called=[_combiner(data, computation, "BEY-82")])


def ragged_all_to_all(
    input: XlaOp,
    input_offsets: XlaOp,
    send_sizes: XlaOp,
    output: XlaOp,
    output_offsets: XlaOp,
    recv_sizes: XlaOp,
    replica_groups: Groups = (),
    channel_id: Channel = None,
) -> XlaOp:
    """Sends rows [input_offsets[j], input_offsets[j] + send_sizes[j]) of the input to member j (BEY-65).

    Member j writes them to its output from row output_offsets[j] on. Rows of the output that no member writes are
    unchanged.

    Parameters
    ----------
    input : XlaOp
        The array whose rows are sent.
    input_offsets : XlaOp
        The first row for each member, a vector of integers.
    send_sizes : XlaOp
        The number of rows for each member, of the shape of `input_offsets`.
    output : XlaOp
        The array that is written to, of the rows' shape.
    output_offsets : XlaOp
        The row of member j's output to write at, of the shape of `input_offsets`.
    recv_sizes : XlaOp
        The number of rows from each member, of the shape of `input_offsets`.

    Returns
    -------
    XlaOp
        An array of the shape of `output`.

    Raises
    ------
    ShapeError
        The operands do not match (BEY-65), or the groups are wrong: GRP-2, GRP-3, GRP-5.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.s32[2])
    >>> ones, places = b.constant([1, 1]), b.constant([0, 1])
    >>> to = hk.broadcast(hk.convert_element_type(hk.replica_id(b), hk.s32), [2])
    >>> sent = hk.ragged_all_to_all(x, places, ones, hk.zeros_like(x), to, ones)
    >>> hk.evaluate(b.build(sent), [[1, 2]], [[3, 4]], replicas=2)
    [array([1, 3], dtype=int32), array([2, 4], dtype=int32)]
    """
    op = RaggedAllToAll(_number(channel_id), _groups(replica_groups))
    return emit(op, input, output, input_offsets, send_sizes, output_offsets, recv_sizes)


def _all_gather(
    operands: Sequence[XlaOp],
    dimension: int,
    count: int,
    groups: Groups,
    channel: Channel,
    layout: Layout | None,
    use_global_device_ids: bool,
) -> XlaOp:
    if count < 1:
        raise ShapeError("AGATHER-4", "shard_count", count, "> 0")
    gathered: list[Shape] = []
    for shape in (o.shape for o in operands):
        if not shape.is_array:
            raise ShapeError("TOKEN-6", "operand", shape, "an array")
        if not 0 <= dimension < shape.rank:
            raise ShapeError("AGATHER-3", "all_gather_dimension", dimension, f"in [0, {shape.rank})")
        gathered.append(_scaled(shape, dimension, shape.dimensions[dimension] * count))
    result = _result(gathered, layout)
    op = AllGather(_number(channel), _groups(groups), layout is not None, dimension, use_global_device_ids, result)
    return emit(op, *operands, shape=result)


def _all_reduce(
    operands: Sequence[XlaOp],
    computation: ComputationLike,
    groups: Groups,
    channel: Channel,
    shape: Shape | None,
    use_global_device_ids: bool,
) -> XlaOp:
    op = AllReduce(_number(channel), _groups(groups), shape is not None, use_global_device_ids)
    return emit(op, *operands, called=[_combiner(operands, computation, "ARED-4")], shape=shape)


def _moved_blocks(exchanged: XlaOp, block: Shape, split: int, concat: int, count: int) -> XlaOp:
    """The blocks that lie along `split`, along `concat` instead: a dimension of blocks is made, moved, merged."""
    from hlokit.builder.movement import reshape, transpose

    sizes = list(block.dimensions)
    apart = reshape(exchanged, [*sizes[:split], count, *sizes[split:]])
    others = [d for d in range(block.rank + 1) if d != split]
    ordered = transpose(apart, [*others[:concat], split, *others[concat:]])
    sizes[concat] *= count
    return reshape(ordered, sizes)


def _all_to_all_of_slices(
    operand: XlaOp, split: int, concat: int, count: int, groups: Groups, layout: Layout | None, channel: Channel
) -> XlaOp:
    from hlokit.builder.indexing import slice_in_dim
    from hlokit.builder.movement import concat_in_dim

    size = _divided(operand.shape, split, count, ("A2A-3", "A2A-5", "A2A-4")).dimensions[split]
    slices = [slice_in_dim(operand, i * size, (i + 1) * size, 1, split) for i in range(count)]
    received = all_to_all_tuple(slices, replica_groups=groups, layout=layout, channel_id=channel)
    return concat_in_dim(list(received), concat)


def _merged(given: Sequence[Any], groups: Groups, layout: Layout | None, channel: Channel) -> tuple[Any, Any, Any]:
    """(replica_groups, layout, channel_id), those given by position first."""
    if len(given) > 3:
        raise MisuseError(f"all_to_all_tuple: found {len(given) - 3} arguments behind channel_id, expected none")
    merged = [*given, *(groups, layout, channel)[len(given) :]]
    if merged[1] is not None and not isinstance(merged[1], Layout):
        raise MisuseError(f"all_to_all_tuple: layout: found {merged[1]!r}, expected a Layout or None")
    return merged[0], merged[1], merged[2]


def _elements(operand: XlaOp, label: str) -> list[XlaOp]:
    """The elements of a tuple of arrays."""
    for shape in operand.shape.elements:
        if not shape.is_array:
            raise ShapeError(label, "tuple element", shape, "an array")
    if not operand.shape.elements:
        raise ShapeError(label, "operand", operand.shape, "not an empty tuple")
    return list(operand)


def _combiner(operands: Sequence[XlaOp], computation: ComputationLike, label: str) -> Any:
    if not operands or not operands[0].shape.is_array:
        raise ShapeError(label, "operands", operands, "arrays, at least one")
    scalar = operands[0].dtype[()]
    return computation_of(computation, [scalar, scalar], operands[0].builder)


def _divided(shape: Shape, dimension: int, count: int, labels: tuple[str, str, str]) -> Shape:
    """`shape` with a dimension divided by `count`; labels of a bad dimension, a bad count and a remainder."""
    if not 0 <= dimension < shape.rank:
        raise ShapeError(labels[0], "dimension", dimension, f"in [0, {shape.rank})")
    if count < 1:
        raise ShapeError(labels[1], "count", count, "> 0")
    size, rest = divmod(shape.dimensions[dimension], count)
    if rest:
        raise ShapeError(labels[2], f"dimension {dimension}", shape.dimensions[dimension], f"a multiple of {count}")
    return _scaled(shape, dimension, size)


def _scaled(shape: Shape, dimension: int, size: int) -> Shape:
    sizes = list(shape.dimensions)
    sizes[dimension] = size
    return shape.with_dimensions(sizes, shape.dynamic)


def _result(shapes: Sequence[Shape], layout: Layout | None) -> Shape:
    fixed = [s if layout is None else s.with_layout(layout) for s in shapes]
    return fixed[0] if len(fixed) == 1 else Shape.tuple(fixed)


def _as_tuple(handle: XlaOp, count: int) -> XlaOp:
    """One operand gives an array, which the tuple forms put into a tuple (ARED-5)."""
    return tuple_(handle.builder, [handle]) if count == 1 else handle


def _groups(groups: Groups) -> ReplicaGroups:
    return groups if isinstance(groups, ReplicaGroups) else ReplicaGroups.explicit(groups)


def _number(channel: Channel) -> int | None:
    return channel.handle if isinstance(channel, ChannelHandle) else channel
