"""Attacks on a real server process: what a client sends, and what it costs everybody else."""
