"""Recordings that clients put into a field of a body: base64, or from elsewhere where the server may go there."""

from __future__ import annotations

import base64
import binascii
import http.client
import os
import re
import time
import urllib.error
from collections.abc import Sequence
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
)

from oscine.errors import BadAudio, InputTooLong, InvalidRequest, OscineError, UnsupportedFeature

_DATA_URI = re.compile(r"data:[\w.+-]+/[\w.+-]+(?:;[\w.+=\"-]+)*;base64,", re.ASCII)
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_SLICE = 1 << 20
"""Characters decoded at a time, a multiple of four: other threads get their turn in between."""
_LONGEST_PATH = 4096
_SOCKET_S = 10.0
_FETCH_S = 60.0
ANY_HOST = "*"


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
            return self._fetch(value, param)
        path = self._path(value)
        if path is not None:
            return self._read_file(path, param)
        prefix = _DATA_URI.match(value[:200])
        try:
            return _from_base64(value, prefix.end() if prefix else 0)
        except (binascii.Error, ValueError) as error:
            known = "no file in the folders this server reads" if self._folders else "paths on the server are not read"
            raise InvalidRequest(f"{param}: neither base64 nor a base64 data: URI ({known})", param=param) from error

    def _path(self, value: str) -> Path | None:
        """The file that `value` names below one of the folders, links resolved; None if there is none."""
        if not self._folders or len(value) > _LONGEST_PATH or "\0" in value:
            return None
        for folder in self._folders:
            path = (folder / value).resolve()
            if path.is_relative_to(folder) and os.path.isfile(path):  # never raises, unlike `Path.is_file`
                return path
        return None

    def _read_file(self, path: Path, param: str) -> bytes:
        try:
            with path.open("rb") as file:
                return self._limited(file.read(self._max_bytes + 1), param)
        except OSError as error:
            raise BadAudio(f"{param}: the file cannot be read: {error.strerror}", param=param) from error

    def _fetch(self, url: str, param: str) -> bytes:
        check_url(url, self._hosts, param)
        opener = OpenerDirector()  # not `build_opener`: that one would read files and speak ftp too
        for handler in (HTTPHandler, HTTPSHandler, HTTPDefaultErrorHandler, HTTPErrorProcessor):
            opener.add_handler(handler())
        opener.add_handler(_Redirects(self._hosts, param))
        try:
            with opener.open(Request(url, headers={"User-Agent": "oscine"}), timeout=_SOCKET_S) as response:
                return self._limited(_read_in_time(response, self._max_bytes + 1), param)
        except OscineError:  # some of ours are ValueErrors
            raise
        except urllib.error.URLError as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            raise BadAudio(f"{param}: the URL cannot be fetched: {error.reason}", param=param) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise BadAudio(f"{param}: the URL cannot be fetched: {error}", param=param) from error

    def _limited(self, data: bytes, param: str) -> bytes:
        if len(data) > self._max_bytes:
            raise InputTooLong(f"{param}: more than the {self._max_bytes} bytes this server takes", param=param)
        return data


class _Redirects(HTTPRedirectHandler):
    """Follows only to where the server may go."""

    def __init__(self, hosts: frozenset[str], param: str) -> None:
        self._hosts, self._param = hosts, param

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> Request | None:
        try:
            check_url(newurl, self._hosts, self._param)
        except OscineError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def check_url(url: str, hosts: frozenset[str], param: str) -> None:
    """Raises UnsupportedFeature for a URL that is not http(s) of one of `hosts`."""
    if not hosts:
        raise UnsupportedFeature(
            f"{param}: the server fetches no URLs; send the audio itself as base64 or a data: URI", param=param
        )
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
    except ValueError as error:
        raise InvalidRequest(f"{param}: not a URL: {error}", param=param) from error
    if parts.scheme not in ("http", "https") or not (host in hosts or (ANY_HOST in hosts and host)):
        allowed = "any host" if ANY_HOST in hosts else ", ".join(sorted(hosts))
        raise UnsupportedFeature(f"{param}: the server fetches http and https from {allowed} only", param=param)


def _read_in_time(response: http.client.HTTPResponse, most: int) -> bytes:
    """At most `most` bytes of the body. Raises TimeoutError if they take too long."""
    deadline = time.monotonic() + _FETCH_S
    data = bytearray()
    while len(data) < most and (block := response.read1(min(1 << 16, most - len(data)))):
        data += block
        if time.monotonic() > deadline:
            raise TimeoutError(f"it took more than {_FETCH_S:g} s")
    return bytes(data)


def _from_base64(value: str, start: int) -> bytes:
    """The bytes of the base64 from `start` on. Raises ValueError (binascii.Error is one)."""
    if value.find("=", start, len(value) - 2) >= 0:
        raise ValueError("padding in the middle")
    data = bytearray()
    for begin in range(start, len(value), _SLICE):
        data += base64.b64decode(value[begin : begin + _SLICE], validate=True)
    return bytes(data)
