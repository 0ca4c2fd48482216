"""Reading, writing, encoding and resampling of audio; numpy and libsndfile only, no torch."""
