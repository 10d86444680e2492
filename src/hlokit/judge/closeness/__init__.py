"""Closeness: whether two results of a program are equal, or both right within what rounding may change."""
