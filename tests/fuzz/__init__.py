"""Random programs: properties, hostile inputs, and the comparison with XLA."""
