"""The CPU backend: HLO -> expression DAG -> loop IR -> LLVM text -> object. See docs/machine_code.md."""
