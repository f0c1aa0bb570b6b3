"""A real test launch: run, watch, ask, check, and one outcome."""
