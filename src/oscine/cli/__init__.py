"""The `oscine` command: thin, and quick to answer `--help`; what is heavy is imported where it is used."""
