"""The stories that the simulator can play, one module each."""
