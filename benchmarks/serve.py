"""Load on a speech server: closed loops of N users, then arrivals at random times. The last line of stdout is JSON.

    python benchmarks/serve.py                             starts a server of its own, with the bundled voice
    python benchmarks/serve.py --model FOLDER              the same with another model
    python benchmarks/serve.py --url http://127.0.0.1:8000 measures a running one, ours or another of the same API

stderr says what is going on, every few seconds. A load ends after `--requests` or `--seconds`, whichever comes first.

Definitions, as speech servers publish them, all seen from the client, over loopback unless --url says otherwise:

- `ttfa_s`: from sending a request to its first audio bytes (a WAV header does not count: the body is pcm).
- `rtf`: the whole request's time over its audio's length.
- `underrun_s`: how long a listener who starts with the first bytes waits in mid-speech, all pauses together.
- `paused`: the share of the requests with more of it than 0.05 s, which a player's own buffer would hide.
- p50 is the median; p90 and p99 are the values that so many percent of the successful requests do not exceed.
- `requests_per_s`, `audio_per_s`: successful requests, and seconds of their audio, in one second of wall time.
- closed_N: N users, each asks again as soon as it has its answer, `--requests` requests in all and at least one each.
  Who is refused with 429 asks again when `Retry-After` says.
- open_R: R requests a second arrive on average, at exponential distances, whether or not earlier ones are done; so a
  server that is too slow shows in `ttfa_s`, not in fewer requests.
- `failures`: how many requests failed, by HTTP status or kind of transport error. They count in nothing else.
- `unfinished`: requests that were broken off because the load's `--seconds` were over. They count in nothing else.

Each request speaks one of five sentences (50 to 66 characters) with its number as seed. Needs httpx (the `dev` extra).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.metadata
import json
import math
import os
import platform
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx

SENTENCES = (
    "The tide came in quietly while nobody was looking.",
    "Please leave the parcel with the neighbour on the second floor.",
    "It will be mostly dry tomorrow, with a light wind from the west.",
    "She read the letter twice before she put it back into the drawer.",
    "Turn left at the old mill, then follow the river for about a mile.",
)
PCM_RATE = 24_000
HIDDEN_S = 0.05
"""Pauses of so long in all are not counted as such."""
TOLD_S = 5.0
"""How often stderr says how far a load is."""
READY_S = 300.0
"""How long a server may take to become ready."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One request: times in seconds. `failure` is empty, or what went wrong."""

    failure: str = ""
    ttfa_s: float = 0.0
    total_s: float = 0.0
    audio_s: float = 0.0
    underrun_s: float = 0.0
    retry_after_s: float = 0.0


async def ask(client: httpx.AsyncClient, model: str, number: int, extra: dict[str, object]) -> Outcome:
    """Speaks one sentence and times its bytes."""
    body: dict[str, object] = {"model": model, "input": SENTENCES[number % len(SENTENCES)], "seed": number}
    body |= {"voice": "alloy", "response_format": "pcm"} | extra
    began = time.perf_counter()
    first = plays_until = None
    underrun = 0.0
    size = 0
    try:
        async with client.stream("POST", "/v1/audio/speech", json=body) as response:
            if response.status_code != 200:
                later = float(response.headers.get("retry-after", 0))
                return Outcome(failure=str(response.status_code), retry_after_s=later)
            async for data in response.aiter_raw():
                now = time.perf_counter()
                first = first or now
                plays_until = plays_until or now
                underrun += max(0.0, now - plays_until)
                plays_until = max(plays_until, now) + len(data) / 2 / PCM_RATE
                size += len(data)
    except httpx.HTTPError as error:
        return Outcome(failure=type(error).__name__)
    if first is None:
        return Outcome(failure="no audio")
    total = time.perf_counter() - began
    return Outcome(ttfa_s=first - began, total_s=total, audio_s=size / 2 / PCM_RATE, underrun_s=underrun)


@dataclass(kw_only=True)
class Load:
    """Requests under way and done. `number` is how many there are to be."""

    name: str
    number: int
    began: float = field(default_factory=time.perf_counter)
    asked: int = 0
    done: list[Outcome] = field(default_factory=list)

    async def ask(self, client: httpx.AsyncClient, args: argparse.Namespace, number: int) -> Outcome:
        """Speaks one sentence and keeps its outcome."""
        self.asked += 1
        outcome = await ask(client, args.served, number, args.extra)
        self.done.append(outcome)
        return outcome

    async def tell(self) -> None:
        """Says on stderr how far it is, until it is cancelled."""
        while True:
            await asyncio.sleep(TOLD_S)
            failed = sum(bool(outcome.failure) for outcome in self.done)
            seconds = time.perf_counter() - self.began
            say(f"{self.name}: {len(self.done)} of {self.number} done, {failed} failed, {seconds:.0f} s")


async def closed_loop(client: httpx.AsyncClient, args: argparse.Namespace, users: int, load: Load) -> None:
    """Each of `users` asks again as soon as it has its answer, until all requests are done."""
    numbers = iter(range(load.number))

    async def user() -> None:
        for number in numbers:
            outcome = await load.ask(client, args, number)
            await asyncio.sleep(outcome.retry_after_s)

    await asyncio.gather(*(user() for _ in range(users)))


async def open_loop(client: httpx.AsyncClient, args: argparse.Namespace, rate: float, load: Load) -> None:
    """Requests arrive at random, `rate` a second on average, whether or not earlier ones are done."""
    draw = random.Random(1)
    async with asyncio.TaskGroup() as tasks:
        for number in range(load.number):
            await asyncio.sleep(draw.expovariate(rate))
            tasks.create_task(load.ask(client, args, number))


async def warm_up(client: httpx.AsyncClient, args: argparse.Namespace, load: Load) -> None:
    """A few requests one after the other."""
    for number in range(load.number):
        await load.ask(client, args, number)


async def run(load: Load, work: Coroutine[None, None, None], seconds: float | None) -> dict[str, object]:
    """The summary of a load, after its `work` or after so many seconds."""
    say(f"{load.name}: {load.number} requests" + (f", {seconds:g} s at most" if seconds else ""))
    teller = asyncio.create_task(load.tell())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work
    teller.cancel()
    return summary(load.done, time.perf_counter() - load.began) | {"unfinished": load.asked - len(load.done)}


def say(text: str) -> None:
    """One line of progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def summary(outcomes: list[Outcome], wall_s: float) -> dict[str, object]:
    """Percentiles over the requests that succeeded, and rates over the wall time."""
    good = [outcome for outcome in outcomes if not outcome.failure]
    series = {
        "ttfa_s": [o.ttfa_s for o in good],
        "rtf": [o.total_s / o.audio_s for o in good if o.audio_s],
        "underrun_s": [o.underrun_s for o in good],
    }
    return {
        "requests": len(outcomes),
        "failed": len(outcomes) - len(good),
        "failures": dict(Counter(outcome.failure for outcome in outcomes if outcome.failure)),
        "wall_s": round(wall_s, 3),
        **{name: percentiles(values) for name, values in series.items()},
        "paused": round(sum(o.underrun_s > HIDDEN_S for o in good) / len(good), 4) if good else None,
        "requests_per_s": round(len(good) / wall_s, 4),
        "audio_per_s": round(sum(o.audio_s for o in good) / wall_s, 4),
    }


def percentiles(values: list[float]) -> dict[str, float] | None:
    """p50, p90 and p99 by nearest rank; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    p90, p99 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.9, 0.99))
    return {"p50": round(median(ordered), 5), "p90": round(p90, 5), "p99": round(p99, 5)}


@contextlib.contextmanager
def server(args: argparse.Namespace) -> Iterator[tuple[str, Callable[[], str]]]:
    """The URL to measure, of the server given or of one started here and stopped at the end, and why it has ended."""
    if args.url:
        yield args.url, lambda: ""
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "oscine", "serve", *([args.model] if args.model else []), "--port", str(port)]
    command += ["--offline", "--device", args.device] + (["--threads", str(args.threads)] if args.threads else [])
    say(f"starting {' '.join(command[1:])}")
    with tempfile.TemporaryFile() as log, subprocess.Popen(command, stderr=log) as process:

        def ended() -> str:
            if process.poll() is None:
                return ""
            log.seek(0)
            return f"the server ended with {process.returncode}:\n{log.read().decode(errors='replace').strip()}"

        try:
            yield f"http://127.0.0.1:{port}", ended
        finally:
            process.terminate()
            process.wait(60)


async def wait_ready(client: httpx.AsyncClient, ended: Callable[[], str]) -> None:
    """Returns once the server is ready; exits with an error when it has ended or takes too long."""
    began = told = time.monotonic()
    while (now := time.monotonic()) < began + READY_S:
        if reason := ended():
            raise SystemExit(reason)
        with contextlib.suppress(httpx.TransportError):
            if (await client.get("/ready", timeout=10)).status_code == 200:
                say(f"the server is ready after {now - began:.1f} s")
                return
        if now > told + TOLD_S:
            told = now
            say(f"waiting for the server to be ready, {now - began:.0f} s")
        await asyncio.sleep(0.2)
    raise SystemExit("the server did not become ready")


async def measure(url: str, ended: Callable[[], str], args: argparse.Namespace) -> dict[str, object]:
    """All loads one after the other, after a few requests to warm up."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        await wait_ready(client, ended)
        args.served = args.served or (await client.get("/v1/models")).json()["data"][0]["id"]
        warm = Load(name="warm-up", number=args.warmup)
        await run(warm, warm_up(client, args, warm), args.seconds)
        loads: dict[str, object] = {}
        for users in args.users:
            load = Load(name=f"closed_{users}", number=max(args.requests, users))
            loads[load.name] = await run(load, closed_loop(client, args, users, load), args.seconds)
            print(f"{load.name:18} {json.dumps(loads[load.name])}", flush=True)
        for rate in args.rates:
            load = Load(name=f"open_{rate:g}", number=args.requests)
            loads[load.name] = await run(load, open_loop(client, args, rate, load), args.seconds)
            print(f"{load.name:18} {json.dumps(loads[load.name])}", flush=True)
        return loads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="measure this server; default: start one")
    parser.add_argument("--model", help="checkpoint folder or cached hub id for the server started here")
    parser.add_argument("--served", help="id of the model to ask for; default: the server's first")
    parser.add_argument("--users", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--rates", type=float, nargs="*", default=[1.0], help="arrivals a second of the open loops")
    parser.add_argument("--requests", type=int, default=32, help="of a load")
    parser.add_argument("--seconds", type=float, help="of a load at most; default: as long as its requests take")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--extra", type=json.loads, default={}, metavar="JSON", help="more fields of every request")
    args = parser.parse_args()
    with server(args) as (url, ended):
        loads = asyncio.run(measure(url, ended, args))
    print(json.dumps({"model": args.served, "url": args.url, **environment(args), "loads": loads}))


def environment(args: argparse.Namespace) -> dict[str, object]:
    """Where and of what the numbers are; versions are those of this process, of a server elsewhere nothing is known."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    versions = {name: importlib.metadata.version(name) for name in ("oscine", "torch")} if not args.url else {}
    return {
        "commit": commit.stdout.strip() or None,
        **versions,
        "device": args.device,
        "threads": args.threads,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "extra": args.extra,
    }


if __name__ == "__main__":
    main()
