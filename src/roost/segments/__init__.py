"""Segment files: frames in files, cut into segments, plain or compressed."""
