"""The command `hlokit`, one file per subcommand."""
