"""The writers of the elements of a kernel's arrays, put together."""

from __future__ import annotations

from hlokit.cpu.emit.addresses import Addresses
from hlokit.cpu.emit.folds import Folds
from hlokit.cpu.emit.loads import Loads
from hlokit.cpu.emit.scope import BufferTable, Emission
from hlokit.cpu.emit.stores import Stores
from hlokit.cpu.emit.values import Values


class Elements:
    """The writers of a kernel's values, folds, addresses, loads and stores, each of which knows those it needs."""

    def __init__(self, emission: Emission, table: BufferTable) -> None:
        self.emission = emission
        self.values = Values(emission)
        self.folds = Folds(self.values)
        self.addresses = Addresses(self.values, table)
        self.loads = Loads(self.values, self.addresses)
        self.stores = Stores(self.values, self.addresses, self.loads)
