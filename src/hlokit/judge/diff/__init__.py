"""Differences between two modules: the instructions that correspond, and their changes."""
