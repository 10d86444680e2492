"""Differences between two modules: which instructions correspond, and what of them changed."""
