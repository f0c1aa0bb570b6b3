"""A budget or diagnosis to single changes, ranked, and the plan of the fix wizard."""
