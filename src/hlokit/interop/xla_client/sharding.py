"""OpSharding: the proto of a sharding as a mutable record. SingleDeviceSharding: where a buffer lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlokit.interop.xla_client.enums import OpSharding_ShardGroupType, OpSharding_Type
from hlokit.interop.xla_client.errors import raises_status
from hlokit.types.sharding import Sharding

if TYPE_CHECKING:
    from hlokit.interop.xla_client.client import Device

_LISTS = (
    "tile_assignment_dimensions",
    "tile_assignment_devices",
    "iota_reshape_dims",
    "iota_transpose_perm",
    "last_tile_dims",
    "metadata",
)
_SINGLES = ("type", "replicate_on_last_tile_dim", "is_shard_group", "shard_group_id", "shard_group_type")


class OpSharding:
    """The placement of a value on the devices, as a mutable record with the proto's field names.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> sharding = xc.OpSharding()
    >>> sharding.type = xc.OpSharding.Type.OTHER
    >>> sharding.tile_assignment_dimensions, sharding.tile_assignment_devices = [2, 1], [0, 1]
    >>> sharding
    {devices=[2,1]0,1}
    """

    Type = OpSharding_Type
    ShardGroupType = OpSharding_ShardGroupType

    def __init__(self) -> None:
        self.type = OpSharding_Type.REPLICATED
        self.tile_assignment_dimensions: list[int] = []
        self.tile_assignment_devices: list[int] = []
        self.iota_reshape_dims: list[int] = []
        self.iota_transpose_perm: list[int] = []
        self.last_tile_dims: list[OpSharding_Type] = []
        self.replicate_on_last_tile_dim = False
        self.is_shard_group = False
        self.shard_group_id = 0
        self.shard_group_type = OpSharding_ShardGroupType.AS
        self.tuple_shardings: list[OpSharding] = []
        self.named_sharding: Any = None
        self.metadata: list[Any] = []

    def HasField(self, name: str) -> bool:
        """Whether a field is set.

        Parameters
        ----------
        name : str
            The field's name.

        Returns
        -------
        bool
            False if it is None.

        Raises
        ------
        AttributeError
            There is no such field.
        """
        return getattr(self, name) is not None

    @property
    def core(self) -> Sharding:
        """hlokit's sharding. Raises HlokitError if the fields do not make one."""
        from hlokit.proto.shapes import sharding_from_proto

        sharding = sharding_from_proto(self)
        sharding.check()
        return sharding

    @raises_status
    def SerializeToString(self) -> bytes:
        """The sharding as a proto.

        Returns
        -------
        bytes
            A serialized OpSharding.

        Raises
        ------
        XlaRuntimeError
            hlokit[proto] is not installed (UNIMPLEMENTED).
        """
        from hlokit.proto.schema import message_class

        proto = message_class("OpSharding")()
        self._write(proto)
        return proto.SerializeToString(deterministic=True)

    @raises_status
    def ParseFromString(self, data: bytes, /) -> None:
        """Replaces all fields by those of a proto.

        Parameters
        ----------
        data : bytes
            A serialized OpSharding.

        Raises
        ------
        XlaRuntimeError
            hlokit[proto] is not installed (UNIMPLEMENTED).
        """
        from hlokit.proto.schema import message_class

        proto = message_class("OpSharding")()
        proto.ParseFromString(data)
        self._read(proto)

    def clone(self) -> OpSharding:
        """A copy that shares nothing with this one.

        Returns
        -------
        OpSharding
            The copy.
        """
        copy = OpSharding()
        copy._read(self)
        return copy

    def _write(self, proto: Any) -> None:
        for name in _SINGLES:
            setattr(proto, name, getattr(self, name))
        for name in _LISTS:
            getattr(proto, name).extend(getattr(self, name))
        for part in self.tuple_shardings:
            part._write(proto.tuple_shardings.add())
        if self.named_sharding is not None:
            proto.named_sharding.CopyFrom(self.named_sharding)

    def _read(self, source: Any) -> None:
        for name in _SINGLES:
            setattr(self, name, getattr(source, name))
        for name in _LISTS:
            setattr(self, name, list(getattr(source, name)))
        self.type = OpSharding_Type(self.type)
        self.shard_group_type = OpSharding_ShardGroupType(self.shard_group_type)
        self.last_tile_dims = [OpSharding_Type(kind) for kind in self.last_tile_dims]
        self.named_sharding = source.named_sharding if source.HasField("named_sharding") else None
        self.tuple_shardings = []
        for part in source.tuple_shardings:
            copy = OpSharding()
            copy._read(part)
            self.tuple_shardings.append(copy)

    def __repr__(self) -> str:
        try:
            return str(self.core)
        except Exception as error:
            return f"<OpSharding that is none: {error}>"


class SingleDeviceSharding:
    """The sharding of an array that lies on one device.

    Parameters
    ----------
    device : Device
        The device.
    memory_kind : str, optional
        The kind of the device's memory; None for the default.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.SingleDeviceSharding(xc.make_cpu_client().devices()[0])
    SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=None)
    """

    __slots__ = ("_device", "_memory_kind")

    def __init__(self, device: Device, *, memory_kind: str | None = None) -> None:
        self._device = device
        self._memory_kind = memory_kind

    @property
    def device(self) -> Device:
        """The device."""
        return self._device

    @property
    def device_set(self) -> set[Device]:
        """The device, as a set of one."""
        return {self._device}

    @property
    def memory_kind(self) -> str | None:
        """The kind of the device's memory; None for the default."""
        return self._memory_kind

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SingleDeviceSharding):
            return NotImplemented
        return (self._device, self._memory_kind) == (other._device, other._memory_kind)

    def __hash__(self) -> int:
        return hash((self._device, self._memory_kind))

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self._device!r}, memory_kind={self._memory_kind!r})"
