"""Which web pages may use the server: the names it goes by, and the origins that requests may come from.

A browser says where a request goes (`Host`) and from which page it comes (`Origin`). A page of another site is told by
its origin. One whose name has been pointed at this machine (DNS rebinding) has an origin that fits, but a `Host` that
is no name of ours. Programs send no `Origin`, and name whatever they were told to connect to.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping

from oscine.errors import InvalidRequest

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:/?#@\[\]\s]+)(?::([0-9]{0,5}))?")
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(.+)")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_EXPOSED = "X-Request-Id, X-Sample-Rate, X-Seed, X-Finish-Reason, Retry-After"
_METHODS = "GET, HEAD, POST, DELETE"
_REMEMBER_S = 600


class OriginPolicy:
    """What a server that listens on `bind` takes as its own names (`hosts` are further ones), and as origins.

    `*` among `hosts` is any. Raises InvalidRequest for a host that is none, or an origin that is not
    `scheme://host[:port]`.
    """

    def __init__(self, bind: str, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        names = [host for host in hosts if host != "*"]
        self._any_host = len(names) < len([*hosts])
        self._hosts = {"localhost", bind.lower().strip("[]")} | {_given_host(name) for name in names}
        self._any_address = not _is_loopback(bind.lower().strip("[]"))
        self._origins = {_given_origin(origin) for origin in origins}

    def allows_host(self, header: str | None) -> bool:
        """Whether `Host` is a name of this server.

        Names are those given, `localhost` and what ends with it, and loopback addresses; where the server listens on
        more than these, any address: nobody can point an address at another machine.
        """
        if header is None or self._any_host:  # without a host: HTTP/1.0, and so no browser
            return True
        found = _HOST.fullmatch(header.strip().lower())
        if found is None:
            return False
        name = found[1].strip("[]").rstrip(".")
        if name in self._hosts or name.endswith(".localhost"):
            return True
        return _is_loopback(name) or (self._any_address and _is_address(name))

    def allows_origin(self, origin: str | None, host: str | None) -> bool:
        """Whether a page of `origin` may use the server that it calls `host`: its own page, or one that was given."""
        if origin is None:
            return True
        normal = _normal_origin(origin)
        if normal is None:  # "null" too: a file, or a frame that hides where it comes from
            return False
        if normal in self._origins:
            return True
        scheme, address = normal
        return host is not None and scheme in _DEFAULT_PORTS and address == _without_default_port(scheme, host)

    def cors_headers(self, origin: str | None) -> dict[str, str]:
        """What lets a page of an origin that was given read the answer."""
        if not self._origins:
            return {}
        headers = {"Vary": "Origin"}
        if origin is not None and _normal_origin(origin) in self._origins:
            headers |= {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": _EXPOSED}
        return headers

    def preflight(self, headers: Mapping[str, str]) -> dict[str, str] | None:
        """The answer's headers if a browser asks, for a page of an origin that was given, what it may send."""
        if "access-control-request-method" not in headers:
            return None
        allowed = self.cors_headers(headers.get("origin"))
        if "Access-Control-Allow-Origin" not in allowed:
            return None
        allowed |= {"Access-Control-Allow-Methods": _METHODS, "Access-Control-Max-Age": str(_REMEMBER_S)}
        if wanted := headers.get("access-control-request-headers"):
            allowed["Access-Control-Allow-Headers"] = wanted
        if headers.get("access-control-request-private-network") == "true":
            allowed["Access-Control-Allow-Private-Network"] = "true"
        return allowed


def _given_host(host: str) -> str:
    found = _HOST.fullmatch(host.strip().lower())
    if found is None or found[2] is not None:
        raise InvalidRequest(f"{host!r} is no host: give a name or an address without a port, or * for any")
    return found[1].strip("[]").rstrip(".")


def _given_origin(origin: str) -> tuple[str, str]:
    normal = _normal_origin(origin)
    if normal is None:
        raise InvalidRequest(f"{origin!r} is no origin: give scheme://host or scheme://host:port, and nothing after it")
    return normal


def _normal_origin(origin: str) -> tuple[str, str] | None:
    """Scheme and address of an origin; None for what is none."""
    found = _ORIGIN.fullmatch(origin.strip().lower())
    if found is None or _HOST.fullmatch(found[2]) is None:
        return None
    return found[1], _without_default_port(found[1], found[2])


def _without_default_port(scheme: str, address: str) -> str:
    return address.strip().lower().removesuffix(f":{_DEFAULT_PORTS.get(scheme)}")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    return name == "localhost" or (_is_address(name) and ipaddress.ip_address(name).is_loopback)
