"""Element types, shapes, layouts, literals, windows, groups, shardings: immutable, interned values."""
