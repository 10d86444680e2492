"""Engines: programs that run a module on arguments, each in a separate process."""
