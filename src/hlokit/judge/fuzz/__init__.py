"""Random programs and their arguments: legal modules of every op, and of typical structure."""
