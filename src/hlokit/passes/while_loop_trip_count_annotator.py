"""while-loop-trip-count-annotator: annotates each counted loop with its trip count."""

from __future__ import annotations

import json

from hlokit.analysis.loops import backend_notes, counter
from hlokit.hlo.module import HloModule
from hlokit.ops.control_flow import While
from hlokit.passes.pipeline import Pass


class WhileLoopTripCountAnnotator(Pass):
    """Writes backend_config={"known_trip_count":{"n":"10"},...} on while loops that count, beside what is there."""

    name = "while-loop-trip-count-annotator"

    def run(self, module: HloModule) -> bool:
        changed = False
        for loop in (i for i in module.instructions() if isinstance(i.op, While)):
            found, config = counter(loop), backend_notes(loop)
            if found is None or config is None:
                continue
            noted = {**config, "known_trip_count": {"n": str(found.trips)}}
            if found.index is not None:
                noted["known_induction_variable"] = {"tuple_index": str(found.index)}
                noted["known_init_step"] = {"init": str(found.start), "step": str(found.step)}
            if noted != config:
                extra = loop.ensure_extra()
                extra.backend_config = json.dumps(noted, separators=(",", ":"))
                extra.backend_config_is_json = True
                changed = True
        return changed
