"""What autoregressive families share: storage and batches of sequences, exactness, sampling, memory."""
