"""Prints HLO texts with jaxlib; runs in an interpreter that has jaxlib 0.10.2 and imports nothing of ours.

Reads one JSON list [id, text] a line, writes one [id, {preset: text}] a line, or [id, "error message"].
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    from jaxlib import _hlo  # type: ignore[import-not-found]

    options = _hlo.HloPrintOptions
    presets = {
        "default": options(),
        "short_parsable": options.short_parsable(),
        "canonical": options.canonical(),
    }
    for line in sys.stdin:
        name, text = json.loads(line)
        try:
            module = _hlo.hlo_module_from_text(text)
            answer: object = {preset: module.to_string(how) for preset, how in presets.items()}
        except Exception as error:
            answer = str(error).strip() or type(error).__name__
        print(json.dumps([name, answer]), flush=True)


if __name__ == "__main__":
    main()
