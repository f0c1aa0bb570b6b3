"""Panels of the main window: values in, wishes out."""
