"""Running compiled programs: executables, memory, threads, and what can be asked of a program that was compiled."""
