"""Benchmarks: one module for each subject, each with `run(quick) -> list[Claim]`."""
