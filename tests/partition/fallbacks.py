"""Ops that run on whole values, in JAX's own tests of shardings: python -m tests.partition.fallbacks [FILE ...]

    --mirror FOLDER     with the snapshot jax-ml+jax (as for tests.jax.suite.run)
    --out FOLDER        where the lines of each program go; what is there is counted, not run again
    --limit SECONDS     a file may take; what its tests compiled until then is counted
    --markdown FILE     the table

For each file of FILES: how many programs of several devices its tests compile on 8 devices, how many ops these have
(parameters, constants and tuples apart), how many of these run on whole values in the parts, how many programs are not
divided and how many ops these have. The causes follow. The ten models: `python -m tests.partition.models`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.jax.suite.run import Job, suite

OWN = Path(__file__).parent / "plugin"
FILES = (
    *("shard_alike_test", "custom_partitioning_test", "memories_test", "array_test", "pmap_test"),
    *("shard_map_test", "pjit_test"),
)


def run(job: Job, log: Path, limit: float | None) -> None:
    """Runs the file's tests in a process, which writes the log; whether they pass is another matter."""
    partial = log.with_suffix(".partial")
    partial.write_text("", encoding="utf-8")
    variables = job.environment(True)
    variables |= {"HLOKIT_FALLBACKS": str(partial), "JAX_SUITE_LOG": str(log.with_suffix(".suite"))}
    variables["PYTHONPATH"] = os.pathsep.join([variables["PYTHONPATH"], str(OWN)])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--override-ini=filterwarnings="]
    command += ["-p", "jax_suite_log", "-p", "partition_fallbacks", job.path]
    with log.with_suffix(".out").open("w", encoding="utf-8") as out:
        try:
            done = subprocess.run(command, env=variables, cwd=job.suite, stdout=out, stderr=out, check=False, timeout=limit)
        except subprocess.TimeoutExpired:
            log.with_suffix(".cut").touch()
        else:
            if done.returncode not in (0, 1):
                raise SystemExit(f"{job.file}: pytest ended with status {done.returncode}: {out.name}")
    partial.rename(log)


def counted(rows: list[dict[str, Any]]) -> list[int]:
    """Programs, their ops, those on whole values, programs that are not divided, their ops."""
    left = [row for row in rows if row["why"]]
    whole = sum(len(row["whole"]) for row in rows)
    return [len(rows), sum(row["ops"] for row in rows), whole, len(left), sum(row["ops"] for row in left)]


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Markdown, a row a file, with the sum and the causes."""
    lines = ["| tests | programs | ops | on whole values | programs not divided | their ops |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: |")
    rows = {name: counted(programs) for name, programs in found.items()}
    rows["all"] = [sum(column) for column in zip(*rows.values())]
    lines += [f"| {name} | " + " | ".join(f"{number:,}" for number in row) + " |" for name, row in rows.items()]
    _, ops, whole, _, undivided = rows["all"]
    share, of_undivided = whole / max(ops, 1), undivided / max(ops, 1)
    lines += ["", f"{share:.3%} of the ops run on whole values in parts, {of_undivided:.3%} in programs not divided.", ""]
    programs = [row for rows in found.values() for row in rows]
    causes = Counter(row["why"] for row in programs if row["why"])
    opcodes = Counter(each.split()[0] for row in programs for each in row["whole"])
    lines += [f"- programs: {count}: {why}" for why, count in causes.most_common()]
    lines += [f"- ops: {count}: {opcode}" for opcode, count in opcodes.most_common()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", default=FILES)
    parser.add_argument("--mirror", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--limit", type=float, metavar="SECONDS")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    folder = suite(options.mirror, options.out.absolute())
    found: dict[str, list[dict[str, Any]]] = {}
    for file in options.files:
        log = options.out.absolute() / f"{file}.fallbacks.jsonl"
        if not log.exists():
            run(Job(folder, options.out, file, "hlokit"), log, options.limit)
        rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        found[f"{file}, cut off" if log.with_suffix(".cut").exists() else file] = rows
    text = table(found)
    print(text)
    if options.markdown:
        options.markdown.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
