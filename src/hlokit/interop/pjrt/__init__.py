"""A PJRT plugin in pure Python: the C interface that JAX talks to, as data, machine code from LLVM text, and Python."""
