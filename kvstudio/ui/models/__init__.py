"""Item models."""
