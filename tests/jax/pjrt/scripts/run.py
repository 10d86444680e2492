"""Runs a script's checks; prints what each raised as a line of JSON."""

import json
import runpy
import sys
import traceback


def main() -> None:
    found = {}
    for name, check in runpy.run_path(sys.argv[1]).items():
        if name.startswith("check_"):
            try:
                check()
                found[name] = ""
            except BaseException:
                found[name] = traceback.format_exc()
    print(json.dumps(found), flush=True)


main()
