"""Place and print: loops become LLVM text. The only stage that knows of vectors, masks and addresses.

A node's code goes to the outermost loop that binds all axes it depends on. A value is a vector if it depends on the
axis whose loop goes by vectors, else a scalar; scalars are spread where they meet vectors.
"""

from hlokit.cpu.emit.kernel import KernelWriter as KernelWriter
