"""The row rule of the packed DiT, which is that of any large product (`oscine.layers.rows`)."""

from oscine.layers.rows import MIN_ROWS, RowRule, last_equal, measured_rule

__all__ = ["MIN_ROWS", "RowRule", "last_equal", "measured_rule"]
