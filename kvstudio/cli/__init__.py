"""kvstudio-cli: the same answers in a terminal, as text or as JSON."""

from kvstudio.cli.main import main

__all__ = ["main"]
