"""A toy family: every letter of the text is a tone, a voice is the pitch of them all."""
