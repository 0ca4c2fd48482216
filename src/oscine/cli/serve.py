"""`oscine serve`: the HTTP server and the page."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oscine.cli.arguments import BACKEND_HELP, THREADS_HELP
from oscine.errors import InvalidRequest, OutputError

if TYPE_CHECKING:
    from oscine.server.models import ModelRegistry
    from oscine.server.state import ServerSettings

_GIB = 1 << 30
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_AT_LEAST_ONE = (
    "max_requests",
    "max_sessions",
    "max_connections",
    "max_chars",
    "max_body_mb",
    "max_held_mb",
    "max_audio_s",
    "decode_timeout_s",
    "max_wait_s",
    "receive_timeout_s",
    "send_timeout_s",
    "shutdown_s",
)
_NEEDED = ("fastapi", "uvicorn", "websockets", "multipart")


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Adds the command to the `oscine` parser."""
    parser = commands.add_parser(
        "serve",
        parents=[common],
        help="serve models over HTTP, with a page to try them",
        description="Serve models over HTTP in the shapes of OpenAI's speech API, with a page to try them at /.",
    )
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help="checkpoint folders or hub ids. Default: the bundled voice"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="port (default: %(default)s)")
    parser.add_argument(
        "--api-key", metavar="K", help="ask clients for this key. Default: OSCINE_API_KEY if set, else none is asked"
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="HOST",
        help="a further name that clients may call this server by, * for any; may be given again. Default: the address "
        "it listens on, localhost, and any IP address if it listens beyond this machine",
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="let pages of this web site use the server, such as https://app.example.org; may be given again. Default: "
        "its own page alone",
    )
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-requests", type=int, default=64, metavar="N", help="at a time (default: %(default)s)")
    limits.add_argument(
        "--max-sessions", type=int, default=128, metavar="N", help="of WebSockets at a time (default: %(default)s)"
    )
    limits.add_argument(
        "--max-connections",
        type=int,
        metavar="N",
        help="at a time; the oldest that are not being served make room (default: 512, or what the limit of open files "
        "allows)",
    )
    limits.add_argument(
        "--max-wait-s",
        type=float,
        default=30,
        metavar="S",
        help="for the turn of a request that is heard while it is made; longer is 429 with Retry-After "
        "(default: %(default)s)",
    )
    limits.add_argument("--max-chars", type=int, default=100_000, metavar="N", help="of a text (default: %(default)s)")
    limits.add_argument("--max-body-mb", type=int, default=32, metavar="N", help="of a request (default: %(default)s)")
    limits.add_argument(
        "--max-held-mb",
        type=int,
        metavar="N",
        help="of all requests being received together (default: 4 of the largest)",
    )
    limits.add_argument(
        "--max-audio-s", type=float, default=1800, metavar="S", help="of a recording to work on (default: %(default)s)"
    )
    limits.add_argument(
        "--audio-memory",
        type=float,
        default=1,
        metavar="GB",
        help="for the decoded recordings of all requests together (default: %(default)s)",
    )
    limits.add_argument(
        "--decode-timeout-s",
        type=float,
        default=30,
        metavar="S",
        help="how long decoding a recording may take (default: %(default)s)",
    )
    limits.add_argument(
        "--allow-url-host",
        action="append",
        default=[],
        metavar="HOST",
        help="fetch recordings from this host when a client sends an http(s) URL, * for any; may be given again. "
        "Default: nothing is fetched",
    )
    limits.add_argument(
        "--allow-path",
        action="append",
        default=[],
        metavar="DIR",
        help="let clients name audio files in this folder; may be given again. Default: no file is read",
    )
    limits.add_argument(
        "--model-memory", type=float, metavar="GB", help="for the weights of all loaded models (default: no limit)"
    )
    limits.add_argument("--idle-unload-s", type=float, metavar="S", help="unload models idle for so long")
    limits.add_argument(
        "--receive-timeout-s",
        type=float,
        default=20,
        metavar="S",
        help="how long a client may take to send a request, and a second more for each 64 KiB (default: %(default)s)",
    )
    limits.add_argument(
        "--send-timeout-s",
        type=float,
        default=60,
        metavar="S",
        help="how long a client may leave what it is sent unread; then its request is cancelled (default: %(default)s)",
    )
    limits.add_argument(
        "--shutdown-s", type=int, default=30, metavar="S", help="for running requests to end (default: %(default)s)"
    )
    where = parser.add_argument_group("model")
    where.add_argument("--offline", action="store_true", help="never download, not even when starting")
    where.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    where.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16", "float16", "int8"))
    where.add_argument("--threads", type=int, metavar="N", help=THREADS_HELP)
    where.add_argument("--backend", default="auto", metavar="B", help=BACKEND_HELP)
    where.add_argument("--voices-dir", metavar="DIR", help="where stored voices are kept")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM, then lets running requests end."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise OutputError(f"the server needs {', '.join(missing)}: pip install 'oscine[server]'")
    key = _api_key(args)
    if args.host not in _LOOPBACK and key is None:
        print(f"oscine: warning: anybody who can reach {args.host} may use this server; see --api-key", file=sys.stderr)
    settings, max_connections = make_settings(args, key), _max_connections(args)
    models = make_registry(args)
    logging.getLogger("oscine").setLevel(logging.INFO)
    streams = logging.getLogger("oscine.stream")
    level = streams.level
    streams.setLevel(logging.WARNING)  # the server's own line about a request says it all
    try:
        return _serve(models, settings, args, max_connections)
    finally:
        streams.setLevel(level)
        models.close()


def make_settings(args: argparse.Namespace, api_key: str | None) -> ServerSettings:
    """The settings that the arguments ask for. Raises InvalidRequest for one out of range."""
    from oscine.server.origins import OriginPolicy
    from oscine.server.state import ServerSettings

    for name in _AT_LEAST_ONE:
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise InvalidRequest(f"--{name.replace('_', '-')} must be at least 1, got {getattr(args, name)}")
    if args.max_held_mb is not None and args.max_held_mb < args.max_body_mb:
        raise InvalidRequest(f"--max-held-mb {args.max_held_mb} is less than --max-body-mb {args.max_body_mb}")
    if not 0 < args.audio_memory < math.inf:
        raise InvalidRequest(f"--audio-memory must be a number of GB above 0, got {args.audio_memory}")
    folders = tuple(Path(folder).expanduser() for folder in args.allow_path)
    for folder in folders:
        if not folder.is_dir():
            raise InvalidRequest(f"--allow-path {folder} is not a folder")
    OriginPolicy(args.host, args.allow_host, args.allow_origin)  # says what is wrong with them
    return ServerSettings(
        host=args.host,
        hosts=tuple(args.allow_host),
        origins=tuple(args.allow_origin),
        api_key=api_key,
        url_hosts=tuple(args.allow_url_host),
        path_folders=folders,
        max_requests=args.max_requests,
        max_sessions=args.max_sessions,
        max_input_chars=args.max_chars,
        max_body_bytes=args.max_body_mb << 20,
        max_held_bytes=(args.max_held_mb or 4 * args.max_body_mb) << 20,
        max_audio_s=args.max_audio_s,
        audio_memory_bytes=int(args.audio_memory * _GIB),
        decode_timeout_s=args.decode_timeout_s,
        receive_timeout_s=args.receive_timeout_s,
        send_timeout_s=args.send_timeout_s,
        max_wait_s=args.max_wait_s,
    )


def make_registry(args: argparse.Namespace) -> ModelRegistry:
    """The models that the arguments name, found (and downloaded, unless offline) now, loaded later."""
    from oscine.server.loading import engine_for, model_specs
    from oscine.server.models import ModelRegistry

    budget = None if args.model_memory is None else int(args.model_memory * _GIB)
    sources = args.models or [None]
    where = {"device": args.device, "dtype": args.dtype, "offline": args.offline}
    engine = engine_for(sources, memory_bytes=budget, **where)
    own = {"threads": args.threads, "backend": args.backend, "voices_dir": args.voices_dir}
    specs = model_specs(sources, engine, **own, **where)
    return ModelRegistry(specs, engine, memory_bytes=budget, idle_s=args.idle_unload_s)


def _api_key(args: argparse.Namespace) -> str | None:
    """The key without the blanks around it, which a header would lose; an empty variable means none."""
    key: str | None = args.api_key if args.api_key is not None else os.environ.get("OSCINE_API_KEY") or None
    if key is None:
        return None
    stripped = key.strip()
    if not stripped:
        raise InvalidRequest("the API key is blank: anybody could use the server; leave it out if that is meant")
    if not (stripped.isascii() and stripped.isprintable()):
        raise InvalidRequest("the API key must be printable ASCII, since it travels in a header")
    return stripped


def _max_connections(args: argparse.Namespace) -> int:
    from oscine.server.run import affordable_connections

    return affordable_connections(args.max_connections, args.max_requests)


def _serve(models: ModelRegistry, settings: ServerSettings, args: argparse.Namespace, max_connections: int) -> int:
    from oscine.server.app import create_app
    from oscine.server.run import serve_app

    return serve_app(
        create_app(models, settings),
        host=args.host,
        port=args.port,
        shutdown_s=args.shutdown_s,
        max_connections=max_connections,
    )
