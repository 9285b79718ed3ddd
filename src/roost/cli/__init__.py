"""The `roost` command: one module for each group of subcommands."""
