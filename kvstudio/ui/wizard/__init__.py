"""The fix wizard's pages."""
