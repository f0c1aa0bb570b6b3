"""Kept runs: a list, one of them in full, two side by side."""
