"""Files that commands read and write; `-` is standard input or output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from hlokit.api import load, parse
from hlokit.errors import HlokitError
from hlokit.files.reading import snapshot_of_bytes
from hlokit.hlo.module import HloModule
from hlokit.proto.snapshot import Snapshot
from hlokit.types.shape import Shape


def is_standard(path: Path | None) -> bool:
    """Whether `-` was given."""
    return path is not None and str(path) == "-"


def path_of(path: Path, device: int) -> Path:
    """The path with the device's number for {device} in it."""
    return Path(str(path).replace("{device}", str(device)))


@cache
def standard_input() -> bytes:
    """All of standard input, which can be read once."""
    return sys.stdin.buffer.read()


def content_of(path: Path) -> bytes:
    """The bytes of a file or of standard input."""
    return standard_input() if is_standard(path) else path.read_bytes()


def loaded(
    path: Path, arguments: Sequence[Shape] | None = None, keeps_regions: bool = False, entry: str | None = None
) -> HloModule:
    """The module in a file or in standard input. Raises as `hk.load` does; `keeps_regions` and `entry` as there."""
    if not is_standard(path):
        return load(path, arguments=arguments, keeps_regions=keeps_regions, entry=entry)
    try:
        return parse(standard_input(), arguments=arguments, keeps_regions=keeps_regions, entry=entry)
    except HlokitError as error:
        error.file = "standard input"
        raise


def snapshot_in(path: Path) -> Snapshot | None:
    """The module, arguments and result in a file or in standard input; None if it holds no arguments."""
    try:
        return snapshot_of_bytes(content_of(path))
    except HlokitError as error:
        error.file = "standard input" if is_standard(path) else str(path)
        raise


def write(path: Path | None, data: bytes) -> None:
    """Writes to a file, or to standard output for `-` and None."""
    if path is not None and not is_standard(path):
        path.write_bytes(data)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
