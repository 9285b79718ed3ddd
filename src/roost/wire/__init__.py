"""Bytes to messages and back. Pure: nothing here touches the machine."""
