"""Launch settings, command lines, binaries and one running process."""
