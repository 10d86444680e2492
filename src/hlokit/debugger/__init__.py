"""The debugger: a program on the reference interpreter, forwards and backwards in time."""
