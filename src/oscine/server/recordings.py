"""Recordings that clients put into a field of a body: base64, or from elsewhere where the server may go there."""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from oscine.errors import BadAudio, InputTooLong, InvalidRequest
from oscine.server.fetching import fetch

_DATA_URI = re.compile(r"data:[\w.+-]+/[\w.+-]+(?:;[\w.+=\"-]+)*;base64,", re.ASCII)
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_SLICE = 1 << 20
"""Characters decoded at a time, a multiple of four: other threads get their turn in between."""
_LONGEST_PATH = 4096
_READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class Recordings:
    """Reads recordings of at most `max_bytes`. `hosts` may be fetched from over http and https, `ANY_HOST` means all.

    Files below `folders` may be named by their path. Without both, the default, nothing but the body is read.
    """

    def __init__(self, *, max_bytes: int, hosts: Sequence[str] = (), folders: Sequence[Path] = ()) -> None:
        self._max_bytes = max_bytes
        self._hosts = frozenset(host.lower() for host in hosts)
        self._folders = tuple(folder.resolve() for folder in folders)

    def read(self, value: str, param: str) -> bytes:
        """The bytes that `value` holds or, with permission, points at; blocks, so call it beside an event loop.

        Raises UnsupportedFeature for a URL that may not be fetched, InvalidRequest for what is neither base64 nor a
        data: URI nor a file that may be read, InputTooLong, and BadAudio for what cannot be fetched.
        """
        if _URL.match(value):
            return fetch(value, self._hosts, param, self._max_bytes)
        file = self._open(value)
        if file is not None:
            return self._read_file(file, param)
        prefix = _DATA_URI.match(value[:200])
        try:
            return _from_base64(value, prefix.end() if prefix else 0)
        except (binascii.Error, ValueError) as error:
            known = "no file in the folders this server reads" if self._folders else "paths on the server are not read"
            raise InvalidRequest(f"{param}: neither base64 nor a base64 data: URI ({known})", param=param) from error

    def _open(self, value: str) -> BinaryIO | None:
        """The file that `value` names below one of the folders, links resolved; None if there is none.

        Only a regular file is read, and nothing waited for, whatever takes its place meanwhile.
        """
        if not self._folders or len(value) > _LONGEST_PATH:
            return None
        for folder in self._folders:
            with suppress(OSError, ValueError, RuntimeError):  # no path, half of a surrogate pair, links in a circle
                path = (folder / value).resolve()
                if not path.is_relative_to(folder) or not path.is_file():
                    continue
                file = os.fdopen(os.open(path, _READING), "rb")
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return file
                file.close()
        return None

    def _read_file(self, file: BinaryIO, param: str) -> bytes:
        try:
            with file:
                return self._limited(file.read(self._max_bytes + 1), param)
        except OSError as error:
            raise BadAudio(f"{param}: the file cannot be read", param=param) from error

    def _limited(self, data: bytes, param: str) -> bytes:
        if len(data) > self._max_bytes:
            raise InputTooLong(f"{param}: more than the {self._max_bytes} bytes this server takes", param=param)
        return data


def _from_base64(value: str, start: int) -> bytes:
    """The bytes of the base64 from `start` on. Raises ValueError (binascii.Error is one)."""
    if value.find("=", start, len(value) - 2) >= 0:
        raise ValueError("padding in the middle")
    data = bytearray()
    for begin in range(start, len(value), _SLICE):
        data += base64.b64decode(value[begin : begin + _SLICE], validate=True)
    return bytes(data)
