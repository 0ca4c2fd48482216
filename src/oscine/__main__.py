"""`python -m oscine`, the same as the `oscine` command."""

from __future__ import annotations

import sys

from oscine.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
