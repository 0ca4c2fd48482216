"""The language models, dense and hybrid, and the tower that hears."""
