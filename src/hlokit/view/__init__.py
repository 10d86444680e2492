"""The viewer: a program, what the passes made of it, its machine code, profile and memory, as one HTML file."""
