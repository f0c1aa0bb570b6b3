"""Compute buffers: the graph llama.cpp reserves, scheduled and allocated on paper."""

from kvstudio.budget.compute.buffers import compute_buffers

__all__ = ["compute_buffers"]
