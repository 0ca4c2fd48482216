"""The documented place of pair guidance (AUDEX spec, 7.4): the module is `oscine.compat.audex_guidance`."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oscine.compat.audex_guidance import *  # noqa: F403
else:
    sys.modules[__name__] = import_module("oscine.compat.audex_guidance")
