"""AuK's VAE: audio to latents and back, whole, in windows and as a stream."""
