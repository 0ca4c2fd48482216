"""Modules that several models are made of: norms, rotary embeddings, feed-forward blocks."""
