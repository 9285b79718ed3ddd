"""The only door to the machine: clock, disk, net, random, tasks, and metrics.

Each seam is a small Protocol with one real implementation here and one simulated in
`roost.sim`; `tests/conformance` runs one suite over both. Everything above takes its seams
as constructor arguments and never asks the machine for anything else.
"""
