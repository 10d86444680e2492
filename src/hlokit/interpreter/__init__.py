"""The reference interpreter: evaluates each instruction by its op's `reference`, in NumPy."""
