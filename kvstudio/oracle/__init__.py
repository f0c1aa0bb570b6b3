"""llama.cpp's own dry run beside our estimate."""
