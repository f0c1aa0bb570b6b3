"""GGUF bytes to a Header: metadata and tensor table, never the weights."""
