"""Convolutions whose spatial sizes are known only when they run."""
