"""The durable queue in a folder: senders, receivers with positions, acknowledgements."""
