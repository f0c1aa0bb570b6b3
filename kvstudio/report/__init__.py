"""A Case to a filled, redacted bug report."""
