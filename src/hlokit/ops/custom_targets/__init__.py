"""What a custom-call's target name stands for: the registry, and the targets that XLA itself would expand."""
