"""What runs a step of the language model: torch (`eager`) or compiled code (`native`), chosen at load."""

SMALL_WEIGHTS = 32 * 10**6
"""A model with more weights in its products is bound by memory: threads help it more than compiled steps."""
