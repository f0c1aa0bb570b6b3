"""Devices with their live memory, from every source that knows them."""
