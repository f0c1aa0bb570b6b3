"""kvstudio: what a GGUF model needs on each device, and why a llama.cpp launch was refused."""

__version__ = "0.1.0"

#: The newest llama.cpp build whose rules the budget model was checked against.
NEWEST_KNOWN_BUILD = 11434
