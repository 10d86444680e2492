"""Op functions of collectives, infeed, outfeed and host transfers."""

import hlokit as hk
from hlokit.interop.xla_client.ops import arguments as t
from hlokit.interop.xla_client.ops.signatures import op


@op()
def AllGather(
    operand: t.Op,
    all_gather_dimension: t.Int,
    shard_count: t.Int,
    replica_groups: t.Groups = (),
    channel_id: t.OptionalChannel = None,
    shape_with_layout: t.OptionalLayout = None,
    use_global_device_ids: t.OptionalBool = None,
) -> hk.XlaOp:
    """The operands of all members of the group, joined along a dimension."""
    options = (replica_groups, channel_id, shape_with_layout, bool(use_global_device_ids))
    return hk.all_gather(operand, all_gather_dimension, shard_count, *options)


@op()
def AllReduce(
    operand: t.Op,
    computation: t.Computation,
    replica_groups: t.Groups = (),
    channel_id: t.OptionalChannel = None,
    shape_with_layout: t.OptionalShape = None,
    use_global_device_ids: t.OptionalBool = None,
) -> hk.XlaOp:
    """The operands of all members of the group, folded by the computation."""
    options = (replica_groups, channel_id, shape_with_layout, bool(use_global_device_ids))
    return hk.all_reduce(operand, computation, *options)


@op()
def AllToAll(
    operand: t.Op,
    split_dimension: t.Int,
    concat_dimension: t.Int,
    split_count: t.Int,
    replica_groups: t.Groups = (),
    layout: t.OptionalLayout = None,
    channel_id: t.OptionalChannel = None,
) -> hk.XlaOp:
    """Each member gives one block to each member, and joins what it gets."""
    options = (replica_groups, layout, channel_id)
    return hk.all_to_all(operand, split_dimension, concat_dimension, split_count, *options)


@op()
def CollectivePermute(
    operand: t.Op, source_target_pairs: t.ListOfPairs, channel_id: t.OptionalChannel = None
) -> hk.XlaOp:
    """Each source's operand goes to its target."""
    return hk.collective_permute(operand, source_target_pairs, channel_id)


@op()
def CrossReplicaSum(operand: t.Op, replica_groups: t.Groups = ()) -> hk.XlaOp:
    """The sum over the group."""
    return hk.cross_replica_sum(operand, replica_groups)


@op()
def ReduceScatter(
    operand: t.Op,
    computation: t.Computation,
    scatter_dimension: t.Int,
    shard_count: t.Int,
    replica_groups: t.Groups = (),
    channel_id: t.OptionalChannel = None,
    layout: t.OptionalLayout = None,
    use_global_device_ids: t.OptionalBool = None,
) -> hk.XlaOp:
    """AllReduce of which each member keeps its block."""
    options = (replica_groups, channel_id, layout, bool(use_global_device_ids))
    return hk.reduce_scatter(operand, computation, scatter_dimension, shard_count, *options)


@op()
def InfeedWithToken(token: t.Op, shape: t.ShapeOf, config: t.Str = "") -> hk.XlaOp:
    """The tuple (next value of the infeed queue, token)."""
    return hk.infeed_with_token(token, shape, config)


@op()
def OutfeedWithToken(operand: t.Op, token: t.Op, shape_with_layout: t.ShapeOf, outfeed_config: t.Str = "") -> hk.XlaOp:
    """Puts the operand into the outfeed queue; a token."""
    return hk.outfeed_with_token(operand, token, shape_with_layout, outfeed_config)


@op()
def SendToHost(operand: t.Op, token: t.Op, shape_with_layout: t.ShapeOf, handle: t.Channel) -> hk.XlaOp:
    """Sends the operand to the host; a token."""
    return hk.send_to_host(operand, token, shape_with_layout, handle)


@op()
def RecvFromHost(token: t.Op, shape: t.ShapeOf, handle: t.Channel) -> hk.XlaOp:
    """The tuple (value received from the host, token)."""
    return hk.recv_from_host(token, shape, handle)
