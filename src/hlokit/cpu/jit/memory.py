"""Memory from the system."""

from __future__ import annotations

import mmap
import sys


def private_memory(size: int) -> mmap.mmap:
    """So many bytes of zeros, in pages of their own, of which the child of a fork has a copy."""
    if sys.platform == "win32":
        return mmap.mmap(-1, size)  # there are no forks
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
