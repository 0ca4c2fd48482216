"""The codecs of Audio8 checkpoints: the released one, and a spectral one that speaks only."""
