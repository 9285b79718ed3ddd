"""Roost: a durable log, from an embedded queue in a folder upwards."""
