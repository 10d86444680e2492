"""Op functions that move data."""

import hlokit as hk
from hlokit.interop.xla_client.ops import arguments as t
from hlokit.interop.xla_client.ops.signatures import op


@op()
def Broadcast(operand: t.Op, sizes: t.Ints) -> hk.XlaOp:
    """New leading dimensions."""
    return hk.broadcast(operand, sizes)


@op()
def BroadcastInDim(operand: t.Op, shape: t.Ints, broadcast_dimensions: t.Ints) -> hk.XlaOp:
    """Operand dimension i becomes dimension broadcast_dimensions[i] of `shape`."""
    return hk.broadcast_in_dim(operand, shape, broadcast_dimensions)


@op()
def Reshape(operand: t.Op, dimensions: t.Ints, new_sizes: t.Ints) -> hk.XlaOp:
    """The elements in row-major order in other sizes (after a transpose to `dimensions`)."""
    return hk.reshape(operand, new_sizes, dimensions)


@Reshape.overload
def _(operand: t.Op, new_sizes: t.Ints) -> hk.XlaOp:
    return hk.reshape(operand, new_sizes)


@op()
def Collapse(operand: t.Op, dimensions: t.Ints) -> hk.XlaOp:
    """Consecutive dimensions made one."""
    return hk.collapse(operand, dimensions)


@op()
def Transpose(operand: t.Op, permutation: t.Ints) -> hk.XlaOp:
    """Dimension i is operand dimension permutation[i]."""
    return hk.transpose(operand, permutation)


@op()
def Rev(operand: t.Op, dimensions: t.Ints) -> hk.XlaOp:
    """These dimensions backwards."""
    return hk.rev(operand, dimensions)


@op()
def ConcatInDim(builder: t.Builder, operands: t.Ops, dimension: t.Int) -> hk.XlaOp:
    """The operands one after the other along a dimension."""
    return hk.concat_in_dim(operands, dimension)


@op()
def Pad(operand: t.Op, padding_value: t.Op, padding_config: t.Padding) -> hk.XlaOp:
    """The operand with padding around it and between its elements."""
    return hk.pad(operand, padding_value, padding_config)


@op()
def Slice(operand: t.Op, start_indices: t.Ints, limit_indices: t.Ints, strides: t.Ints) -> hk.XlaOp:
    """Elements start, start + stride, ... below limit of each dimension."""
    return hk.slice(operand, start_indices, limit_indices, strides)


@op()
def SliceInDim(operand: t.Op, start_index: t.Int, limit_index: t.Int, stride: t.Int, dimno: t.Int) -> hk.XlaOp:
    """Slice of one dimension."""
    return hk.slice_in_dim(operand, start_index, limit_index, stride, dimno)


@op()
def DynamicSlice(operand: t.Op, start_indices: t.Ops, slice_sizes: t.Ints) -> hk.XlaOp:
    """A block of these sizes from a place known at run time."""
    return hk.dynamic_slice(operand, start_indices, slice_sizes)


@op()
def DynamicUpdateSlice(operand: t.Op, update: t.Op, start_indices: t.Ops) -> hk.XlaOp:
    """The operand with a block replaced at a place known at run time."""
    return hk.dynamic_update_slice(operand, update, start_indices)


@op()
def Gather(
    a: t.Op,
    start_indices: t.Op,
    dimension_numbers: t.GatherNumbers,
    slice_sizes: t.Ints,
    indices_are_sorted: t.Bool = False,
) -> hk.XlaOp:
    """Slices of `a` at many start indices."""
    return hk.gather(
        a,
        start_indices,
        dimension_numbers,
        slice_sizes,
        indices_are_sorted,
    )


@op()
def Scatter(
    input: t.Op,
    scatter_indices: t.Op,
    updates: t.Op,
    update_computation: t.Computation,
    dimension_numbers: t.ScatterNumbers,
    indices_are_sorted: t.Bool = False,
    unique_indices: t.Bool = False,
) -> hk.XlaOp:
    """The input with updates combined into it at many indices; a tuple for several inputs."""
    options = (dimension_numbers, indices_are_sorted, unique_indices)
    return hk.scatter(input, scatter_indices, updates, update_computation, *options)


@Scatter.overload
def _(
    inputs: t.Ops,
    scatter_indices: t.Op,
    updates: t.Ops,
    update_computation: t.Computation,
    dimension_numbers: t.ScatterNumbers,
    indices_are_sorted: t.Bool = False,
    unique_indices: t.Bool = False,
) -> hk.XlaOp:
    options = (dimension_numbers, indices_are_sorted, unique_indices)
    return hk.scatter(inputs, scatter_indices, updates, update_computation, *options)


@op()
def GetDimensionSize(operand: t.Op, dimension: t.Int) -> hk.XlaOp:
    """The run-time size of a dimension."""
    return hk.get_dimension_size(operand, dimension)


@op()
def SetDimensionSize(operand: t.Op, val: t.Op, dimension: t.Int) -> hk.XlaOp:
    """The operand with a dimension cut to `val` elements."""
    return hk.set_dimension_size(operand, val, dimension)


@op()
def RemoveDynamicDimension(operand: t.Op, dimension: t.Int) -> hk.XlaOp:
    """The operand with a dimension at its bound."""
    return hk.remove_dynamic_dimension(operand, dimension)


@op()
def DynamicReshape(operand: t.Op, dim_sizes: t.Ops, new_size_bounds: t.Ints, dims_are_dynamic: t.Bools) -> hk.XlaOp:
    """Reshape to sizes known at run time."""
    return hk.dynamic_reshape(operand, dim_sizes, new_size_bounds, dims_are_dynamic)
