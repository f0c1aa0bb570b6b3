"""Background work of the window: QtCore only."""
