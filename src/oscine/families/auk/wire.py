"""The documented place of the split deployment's frames (AUK spec, 6): the module is `oscine.compat.auk_wire`."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oscine.compat.auk_wire import *  # noqa: F403
else:
    sys.modules[__name__] = import_module("oscine.compat.auk_wire")
