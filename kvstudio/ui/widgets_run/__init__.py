"""Parts of the run area and of the report dialog."""
