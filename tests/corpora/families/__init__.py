"""Families of programs: each module has NAMES, packages(name) and make(name)."""
