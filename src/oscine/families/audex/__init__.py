"""NVIDIA Nemotron-Labs-Audex: one language model over text and audio tokens, with its two codecs and its ears."""
