"""A training step of a 7-billion-parameter transformer on 64 to 4,096 hosts, on paper: partitioned, replayed on a model
of a network, and planned in memory. No weights are allocated and no devices are needed."""
