"""Painted widgets."""
