"""Finding, checking and reading the folders of checkpoints, and the voices that users store."""
