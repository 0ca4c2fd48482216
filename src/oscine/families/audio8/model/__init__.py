"""The language model: a slow model over columns, a fast model inside each frame."""
