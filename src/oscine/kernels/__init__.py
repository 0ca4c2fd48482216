"""Matrix products by weight format: float32, bfloat16, float16 and int8; nothing of a model family."""
