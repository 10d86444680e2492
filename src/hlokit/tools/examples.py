"""Examples of the subcommands, which `hlokit COMMAND --help` ends with."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "hlokit run model.hlo --random 0 --output right.npz",
        "hlokit run model.hlo --input f32[4,8]=1 --input 's32[3]={1, 2, 3}' --expect right.npz --rtol 1e-5",
        "mpirun -n 8 hlokit run model.hlo --random 0 --partitions 8",
    ),
    "check": ("hlokit check *.hlo", "hlokit check model.hlo --replicas 4 --json"),
    "print": ("hlokit print model.hlo.pb", "hlokit print model.hlo --form stablehlo"),
    "convert": ("hlokit convert model.hlo model.hlo.pb", "hlokit convert model.mlirbc model.mlir"),
    "opt": (
        "hlokit opt model.hlo --passes algsimp,cse,dce --output smaller.hlo",
        "hlokit opt model.hlo --print-after-all",
    ),
    "diff": ("hlokit diff a.hlo b.hlo --html page.html", "hlokit diff dump_folder --details"),
    "view": (
        "hlokit view model.hlo -o model.html --random 0",
        "hlokit view huge.hlo --graph",
        "hlokit view model.hlo --mesh a=2,b=4",
    ),
    "compare": ("hlokit compare model.hlo --random 0 --engines compiled,jaxlib --report found",),
    "reduce": (
        "hlokit reduce model.hlo --mismatch reference jaxlib",
        "hlokit reduce model.hlo --check 'python fails.py {hlo}' --time-limit 600",
    ),
    "extract": ("hlokit extract model.hlo --instruction dot.3 --random 0 --output dot.hlo",),
    "fuzz": (
        "hlokit fuzz --engines jaxlib --count 500 --ops dot,add,reduce --types f32,bf16 --folder found",
        "hlokit fuzz --rerun --folder found",
    ),
    "conform": (
        "hlokit conform --engine jaxlib --rules REDUCE,DOTG --html report.html --junit report.xml",
        "hlokit conform --engine-cmd 'simulator {hlo} {inputs} {outputs}'",
    ),
    "cost": ("hlokit cost model.hlo --sort bytes --top 5",),
    "bench": ("hlokit bench model.hlo --repeat 100 --jaxlib",),
    "debug": (
        "hlokit debug model.hlo --input arguments.npz",
        "hlokit debug step.hlo --random 0 --command 'run nan' --command 'from log.3' --command quit",
    ),
    "compile": (
        "hlokit compile model.hlo --emit loops",
        "hlokit compile model.hlo --emit obj --target aarch64 --output model.o",
    ),
    "partition": (
        "hlokit partition model.hlo --mesh a=2,b=4 --explain",
        "hlokit partition model.hlo --mesh a=8 --in-shardings '{devices=[8,1]<=[8]};' --output parts.hlo",
    ),
    "simulate": ("hlokit simulate model.hlo --topology ring:8 --bandwidth 100GB/s --latency 1us --trace trace.json",),
    "devices": ("hlokit devices /tmp/flight", "hlokit devices --json rank0.json rank1.json"),
    "ops": ("hlokit ops reduce-window",),
    "explain": ("hlokit explain BCAST-3", "hlokit explain reduce-window"),
    "completion": ("hlokit completion bash > ~/.local/share/bash-completion/completions/hlokit",),
    "cache show": ("hlokit cache show --json",),
    "cache clear": ("hlokit cache clear --dry-run",),
    "cache why": ("hlokit cache why model.hlo",),
}


def epilogue(name: str) -> str:
    """The end of a subcommand's help."""
    return "\n".join(["Examples:", "", *(f"    {line}" for line in EXAMPLES[name])])
