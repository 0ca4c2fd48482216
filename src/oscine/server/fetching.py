"""Fetches a recording from a URL that a client sends, where the server may go there."""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
import time
from contextlib import closing, suppress
from functools import partial
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from oscine.cancellation import Watchdog, check_cancelled
from oscine.errors import BadAudio, InputTooLong, InvalidRequest, OscineError, UnsupportedFeature

_log = logging.getLogger(__name__)

ANY_HOST = "*"
FETCH_S = 60.0
"""For a URL as a whole: names, connections, redirections, headers and body."""
_SOCKET_S = 10.0
"""For a connection to be made, and without a byte."""
_MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_PLAIN = "/%?&=:;,@!$'()*+~-._[]"
"""Characters of a path or a query that are sent as they are."""


def fetch(url: str, hosts: frozenset[str], param: str, max_bytes: int, *, timeout_s: float = FETCH_S) -> bytes:
    """The body behind `url`, redirections to `hosts` followed. Blocks, for `timeout_s` and a lookup of a name at most.

    Raises as `check_url`, InputTooLong, Cancelled, and BadAudio for what cannot be fetched; why is for the log alone,
    since it would tell clients what else there is in the server's network.
    """
    deadline = time.monotonic() + timeout_s
    try:
        for _ in range(_MOST_REDIRECTS + 1):
            parts = check_url(url, hosts, param)
            location, data = _ask(parts, deadline, max_bytes)
            if location is None:
                break
            url = urljoin(url, location)
        else:
            raise OSError("too many redirections")
    except OscineError:  # some of ours are ValueErrors
        raise
    except (OSError, ValueError, http.client.HTTPException) as error:
        check_cancelled()  # then it was broken off
        _log.info("a recording cannot be fetched from %s: %s", urlsplit(url).hostname, error)
        raise BadAudio(f"{param}: the URL cannot be fetched", param=param) from None
    if len(data) > max_bytes:
        raise InputTooLong(f"{param}: more than the {max_bytes} bytes this server takes", param=param)
    return data


def check_url(url: str, hosts: frozenset[str], param: str) -> SplitResult:
    """The parts of a URL. Raises UnsupportedFeature for one that is not http(s) of one of `hosts`."""
    if not hosts:
        raise UnsupportedFeature(
            f"{param}: the server fetches no URLs; send the audio itself as base64 or a data: URI", param=param
        )
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise InvalidRequest(f"{param}: not a URL: {error}", param=param) from error
    if parts.scheme not in ("http", "https") or not (host in hosts or (ANY_HOST in hosts and host)):
        allowed = "any host" if ANY_HOST in hosts else ", ".join(sorted(hosts))
        raise UnsupportedFeature(f"{param}: the server fetches http and https from {allowed} only", param=param)
    return parts


def _ask(parts: SplitResult, deadline: float, max_bytes: int) -> tuple[str | None, bytes]:
    """Where it is instead, or what is there: no more than a byte beyond `max_bytes`."""
    with closing(http.client.HTTPConnection(parts.hostname or "", _port(parts))) as connection:
        if parts.port is None:
            connection.default_port = _port(parts)  # which the header `Host` leaves out
        connection.sock = _connect(parts, deadline)
        with Watchdog(partial(_shut_down, connection.sock), deadline - time.monotonic()):
            target = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_PLAIN)
            connection.request("GET", target, headers={"User-Agent": "oscine", "Connection": "close"})
            with connection.getresponse() as response:
                location = response.getheader("Location")
                if response.status in _REDIRECTS and location:
                    return location, b""
                if response.status != 200:
                    raise OSError(f"status {response.status}")
                data = _read(response, max_bytes + 1)
        check_cancelled()
        if time.monotonic() > deadline:  # then the connection has been shut down, which looks like the end of the body
            raise TimeoutError("it takes too long")
        return None, data


def _connect(parts: SplitResult, deadline: float) -> socket.socket:
    """A connection to one of the addresses of the host."""
    failure: OSError = OSError("no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(parts.hostname, _port(parts), type=socket.SOCK_STREAM):
        left = min(_SOCKET_S, deadline - time.monotonic())
        if left <= 0:
            raise TimeoutError("it takes too long")
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(left)
            made.connect(address)
            if parts.scheme == "https":
                return ssl.create_default_context().wrap_socket(made, server_hostname=parts.hostname)
            return made
        except OSError as error:
            made.close()
            failure = error
    raise failure


def _port(parts: SplitResult) -> int:
    return parts.port or (http.client.HTTPS_PORT if parts.scheme == "https" else http.client.HTTP_PORT)


def _shut_down(connection: socket.socket) -> None:
    """Ends a connection that another thread reads from."""
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not the method of TLS, which would say goodbye


def _read(response: http.client.HTTPResponse, most: int) -> bytes:
    data = bytearray()
    while len(data) < most and (block := response.read1(min(1 << 16, most - len(data)))):
        data += block
    if len(data) < most and response.length:
        raise http.client.IncompleteRead(bytes(data), response.length)
    return bytes(data)
