"""Text before speech: cleaning, planning pieces, length budgets and front ends; no tensors, no audio."""
