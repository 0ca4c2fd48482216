"""Finds the folder of a checkpoint: bundled with the package, on disk, in the hub's cache, or downloaded."""

from __future__ import annotations

import importlib.resources
import logging
import os
import re
from pathlib import Path
from typing import Any

from oscine.checkpoint.json_text import parse_json
from oscine.errors import CheckpointError, MissingFile, UnknownModel
from oscine.registry import families

_log = logging.getLogger(__name__)

DATA_FILES = ("*.json", "*.safetensors", "*.txt", "LICENSE*", "README.md")
"""What is fetched from a hub for any family: data only, never code. A family may name more (`FamilySpec.hub_files`)."""
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def resolve_source(
    source: str | os.PathLike[str] | None,
    *,
    revision: str | None = None,
    offline: bool = False,
    download: bool = True,
) -> Path:
    """The folder of `source`: a folder, a hub id ("org/name"), or None for the voice bundled with the package.

    A hub id is looked up in the cache first and then works without a network; `revision` names another version than
    the one cached. Only data files are fetched (`fetched_files`). With `offline`, or without `download`, nothing is.
    Raises UnknownModel for a name that means nothing, MissingFile for one that is known but cannot be had.
    """
    if source is None:
        return bundled_folder()
    text = os.fspath(source)
    path = Path(text).expanduser()
    if text and path.is_dir():
        return path
    if text and path.exists():
        raise UnknownModel(f"{text!r} is a file; give the folder that holds config.json", param="model")
    if isinstance(source, Path) or not _HUB_ID.fullmatch(text):
        raise UnknownModel(
            f"no model {text!r}: neither an existing folder nor a hub id of the form org/name", param="model"
        )
    return _from_hub(text, revision, may_download=download and not offline)


def bundled_folder() -> Path:
    """The folder of the voice that comes with the package; MissingFile if this installation lacks it."""
    folder = Path(str(importlib.resources.files("oscine"))) / "voices" / "default"
    if not is_complete(folder):
        raise MissingFile(
            f"the bundled voice is not in this installation ({folder}); reinstall oscine, or name a model folder"
        )
    return folder


def cached_folder(hub_id: str, revision: str | None = None) -> Path | None:
    """The complete snapshot of a hub id in the local cache, or None; touches no network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        found = Path(
            snapshot_download(
                hub_id,
                revision=revision,
                local_files_only=True,
                **fetched_files(),
            )
        )
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    return found if is_complete(found) else None


def is_complete(folder: Path) -> bool:
    """Whether the folder holds a configuration and every weight file that its indices name, beside them or elsewhere:
    two folders of a release may share files that stand in one of them."""
    configs = ("config.json", *(name for spec in families() for name in spec.config_files))
    if not any((folder / name).is_file() for name in configs):
        return False
    present = {path.name for path in folder.rglob("*.safetensors") if path.is_file()}
    for index in folder.rglob("*.safetensors.index.json"):
        if index.parent.name in _unused_folders():
            continue
        try:
            shards = set(parse_json(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            raise CheckpointError(f"{index} is not a weight index: {error}") from error
        if not shards <= present:
            return False
    return bool(present)


def fetched_files() -> dict[str, Any]:
    """The patterns of what is fetched from a hub and what is left there, as arguments of `snapshot_download`."""
    more = (name for spec in families() for name in spec.hub_files)
    return {
        "allow_patterns": [*DATA_FILES, *more],
        "ignore_patterns": [f"{name}/*" for name in _unused_folders()],
    }


def _unused_folders() -> list[str]:
    return [name for spec in families() for name in spec.unused_folders]


def _from_hub(hub_id: str, revision: str | None, *, may_download: bool) -> Path:
    cached = cached_folder(hub_id, revision)
    if cached is not None:
        return cached
    if not may_download:
        raise MissingFile(
            f"{hub_id} is not in the local cache and downloading is off; load it once with a network, "
            "or pass the folder of a copy"
        )
    return _download(hub_id, revision)


def _download(hub_id: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    _log.info("downloading %s", hub_id)
    try:
        folder = Path(
            snapshot_download(
                hub_id,
                revision=revision,
                **fetched_files(),
                library_name="oscine",
            )
        )
    except GatedRepoError as error:
        raise UnknownModel(
            f"{hub_id} needs its terms accepted: do so on its page, log in with 'hf auth login', try again",
            param="model",
        ) from error
    except RevisionNotFoundError as error:
        raise UnknownModel(f"{hub_id} has no revision {revision!r}", param="model") from error
    except RepositoryNotFoundError as error:
        raise UnknownModel(
            f"the hub has no model {hub_id!r} that you may read; check the spelling", param="model"
        ) from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, HfHubHTTPError, OSError) as error:
        raise MissingFile(
            f"cannot download {hub_id}: {_first_line(error)}. Check the network, or pass the folder of a copy"
        ) from error
    if not is_complete(folder):
        raise MissingFile(f"{hub_id} holds no usable checkpoint: no config.json, or weight files are missing")
    return folder


def _first_line(error: BaseException) -> str:
    """The innermost cause in a line; the outer one is a paragraph of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
