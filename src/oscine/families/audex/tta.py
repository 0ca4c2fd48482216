"""The documented place of the text-to-audio names (AUDEX spec, 7): the module is `oscine.compat.audex_tta`."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oscine.compat.audex_tta import *  # noqa: F403
else:
    sys.modules[__name__] = import_module("oscine.compat.audex_tta")
