"""What Roost can do today, shown: `make demo`. One module for each thing shown."""
