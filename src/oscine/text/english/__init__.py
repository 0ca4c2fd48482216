"""English: what a written text says, and the phonemes of American English that say it."""
