"""Engines: whatever runs a program on arguments, each in a process of its own."""
