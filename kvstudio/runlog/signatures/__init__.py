"""The phrases llama.cpp, its backends and its wrappers use, one row each."""
