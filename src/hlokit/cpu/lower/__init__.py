"""From HLO to steps on buffers: the values in memory, the values of each kernel, and the address of each buffer."""
