"""What a process is told: from flags, the environment and a file, in this order of precedence.

This package is the only place that reads configuration; everything else takes plain values. `node`
has the fields of a storage node, `values` how each kind of value is read and written, and `reading`
finds out which value counts. The promise: what is not understood is refused, never passed over, and
the error names the field, where it was given, and what is allowed.
"""
