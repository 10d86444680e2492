"""A map of kernels: which share of the machine's limit each reaches, cell by cell (`python -m bench.map --help`)."""
