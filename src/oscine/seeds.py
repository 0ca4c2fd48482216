"""Seeds derived from a request's seed, so that one number repeats a whole request."""

from __future__ import annotations

import hashlib
import secrets

MAX_SEED = 2**63 - 1


def fresh_seed() -> int:
    """A new random seed in 0..2^32-1: short enough to be typed back."""
    return secrets.randbits(32)


def derive_seed(seed: int, *path: int) -> int:
    """The seed of one part of a request, e.g. `derive_seed(seed, piece, attempt)`; `seed` itself when all are 0.

    Parts get unrelated streams (SHA-256 of the numbers), yet the first attempt of the first piece uses the caller's
    seed as it is, which is what the reference does with a single utterance.
    """
    if not any(path):
        return seed
    digest = hashlib.sha256("/".join(map(str, (seed, *path))).encode()).digest()
    return int.from_bytes(digest[:8], "little") & MAX_SEED
