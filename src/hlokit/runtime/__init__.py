"""Running compiled programs: executables, memory, threads, and the inspection of compiled programs."""
