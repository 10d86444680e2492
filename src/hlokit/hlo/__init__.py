"""The graph: ops, instructions, computations, modules, and the verifier."""
