"""Compiles the native steps when oscine is installed; without a C compiler the installation goes on without them."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = "src/oscine/families/*/backends/*.c"
"""One library for each, beside it."""
HEADERS = "src/oscine/kernels"
FLAGS = (
    *("-std=c11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi", "-fPIC", "-shared"),
    "-ffp-contract=off",  # a compiler that fuses here and not there would give rows other bits in other company
)
VARIANTS = {"": (), "_avx2": ("-march=x86-64-v3",), "_avx512": ("-march=x86-64-v4",)}
"""Suffix of the library → flags; which one is loaded is chosen when it runs."""


class NativeBuildHook(BuildHookInterface[Any]):
    """Puts a library for each kind of processor beside the source; `OSCINE_NATIVE=0` leaves them out."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles; a wheel with libraries in it is for this system alone."""
        if self.target_name != "wheel" or os.environ.get("OSCINE_NATIVE") == "0":
            return
        libraries = compile_native(Path(self.root))
        if libraries:
            build_data["artifacts"] += [str(library.relative_to(self.root)) for library in libraries]
            build_data["pure_python"] = False
            build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")


def compile_native(root: Path) -> list[Path]:
    """The libraries that could be made; empty without a compiler that works."""
    command = shlex.split(os.environ.get("CC", "")) or [*filter(shutil.which, ("cc", "gcc", "clang"))][:1]
    if not command:
        return []
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    libraries = []
    for source in sorted(root.glob(SOURCES)):
        for suffix, flags in VARIANTS.items() if is_x86 else [("", ())]:
            target = source.with_name(f"lib{source.stem}{suffix}.so")
            inputs = (f"-I{root / HEADERS}", str(source))
            try:
                made = subprocess.run(
                    [*command, *FLAGS, *flags, *inputs, "-o", str(target), "-lm"], capture_output=True
                )
            except OSError:  # $CC names none
                return []
            if made.returncode == 0:
                libraries.append(target)
    return libraries
