"""Model, settings and devices to a Budget: what llama.cpp will allocate, where."""
