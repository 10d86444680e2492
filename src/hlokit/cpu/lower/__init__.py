"""From HLO to steps on buffers: which values lie in memory, what one kernel makes, and where each buffer lies."""
