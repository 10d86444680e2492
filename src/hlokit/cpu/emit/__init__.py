"""Emission: translates loops to LLVM text. The only stage that deals with vectors, masks and addresses.

A node's code goes to the outermost loop that binds all axes it depends on. A value is a vector if it depends on the
axis whose loop is vectorised, otherwise a scalar; scalars are broadcast where they are combined with vectors.
"""

from hlokit.cpu.emit.kernel import KernelWriter as KernelWriter
