"""The documented place of the sampling functions (AUDIO8 spec, 7): the module is `oscine.compat.audio8_sampling`."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oscine.compat.audio8_sampling import *  # noqa: F403
else:
    sys.modules[__name__] = import_module("oscine.compat.audio8_sampling")
