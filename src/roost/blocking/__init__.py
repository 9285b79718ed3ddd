"""The same API without asyncio: for threads, scripts and the shell.

Everything runs in one event loop on a thread of its own, and every call waits for it, with a
deadline. `cluster` has what `roost.connect` gives.
"""
