"""Joining pieces: no click at the seam, chunking irrelevant, one piece untouched."""

from __future__ import annotations

import numpy as np
import pytest

from oscine.audio.join import PieceJoiner

RATE = 1000  # 5 ms are 5 samples


def join(pieces: list[np.ndarray], chunk: int) -> np.ndarray:
    joiner, out = PieceJoiner(RATE, len(pieces)), []
    for number, piece in enumerate(pieces):
        out += [joiner.push(piece[i : i + chunk]) for i in range(0, len(piece), chunk)]
        out.append(joiner.end_piece(last=number == len(pieces) - 1))
    return np.concatenate(out)


def test_a_single_piece_is_the_decoders_samples_exactly() -> None:
    piece = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    np.testing.assert_array_equal(join([piece], 7), piece)


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 8, 100])
def test_chunking_does_not_change_the_joined_samples_nor_their_number(chunk: int) -> None:
    pieces = [np.full(n, 0.5, np.float32) for n in (40, 3, 25)]
    np.testing.assert_allclose(join(pieces, chunk), join(pieces, 1000), atol=1e-7)
    assert len(join(pieces, chunk)) == 68


def test_the_seam_goes_through_silence_and_the_outer_edges_stay() -> None:
    joined = join([np.ones(20, np.float32), np.ones(20, np.float32)], 6)
    assert joined[0] == joined[-1] == 1
    assert max(joined[19], joined[20]) < 0.05
    assert (joined[:15] == 1).all()
    assert (joined[25:] == 1).all()
    assert np.abs(np.diff(joined)).max() < 0.4


def test_a_piece_without_samples_has_no_edges() -> None:
    piece = np.ones(30, np.float32)
    np.testing.assert_array_equal(join([np.zeros(0, np.float32), piece], 7), piece)
