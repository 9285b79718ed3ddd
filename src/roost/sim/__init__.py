"""A deterministic world for the production code: virtual time, faulty disks and networks."""
