"""Log bytes to numbered lines and typed events."""
