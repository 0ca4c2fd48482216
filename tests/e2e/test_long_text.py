"""A long text in bounded memory, with every piece accounted for."""

from __future__ import annotations

import resource

import pytest

import oscine

SENTENCES = 150


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ten_minutes_of_text_run_in_bounded_memory(model: oscine.Model) -> None:
    text = " ".join(f"Sentence number {n} is here, and it goes on for a little while longer." for n in range(SENTENCES))
    seconds, peaks = 0.0, []
    with model.stream(text, seed=1, max_new_tokens=170) as stream:
        for chunk in stream:
            seconds += len(chunk.samples) / chunk.sample_rate
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert len(stream.pieces) == len(stream.plan.jobs)
    assert " ".join(piece.text for piece in stream.pieces).split() == text.split()
    assert seconds == pytest.approx(sum(p.num_frames for p in stream.pieces) / model.capabilities.frame_rate, abs=0.01)
    quarter = len(peaks) // 4
    assert peaks[-1] - peaks[quarter] < 32 * 1024  # KiB: what the last three quarters added
