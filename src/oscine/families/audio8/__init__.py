"""Audio8 TTS: two autoregressive models, one along the frames and one within each, and a causal codec."""
