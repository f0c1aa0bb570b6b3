"""Header to ModelInfo: what the architecture means for memory."""
