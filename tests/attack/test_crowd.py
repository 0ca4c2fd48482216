"""More listeners than a machine can serve, all at once: some are served as if alone, the others told when to come."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.server.conftest import SPEECH, body, series

from .harness import server_process

USERS = 60


def test_a_crowd_is_answered_and_nobody_else_waits(tmp_path: Path) -> None:
    with (
        server_process(tmp_path, "--max-wait-s", "1") as server,
        httpx.Client(base_url=server.url, timeout=120, limits=httpx.Limits(max_connections=None)) as client,
        ThreadPoolExecutor(USERS) as pool,
    ):

        def ask(seed: int) -> httpx.Response:
            fields = body(seed=seed, response_format="pcm", input="Hello world. " * 20, max_new_tokens=60)
            return client.post(SPEECH, json=fields)

        alone = ask(0)
        assert alone.status_code == 200
        with server.watched() as watch:
            answers = list(pool.map(ask, range(USERS)))
        statuses = [answer.status_code for answer in answers]
        assert set(statuses) <= {200, 429}
        assert 200 in statuses
        for answer in answers:
            if answer.status_code == 429:
                assert answer.json()["error"]["code"] == "queue_full"
                assert int(answer.headers["retry-after"]) >= 1
        assert ask(0).content == alone.content
        if statuses[0] == 200:
            assert answers[0].content == alone.content
        assert not watch.failures
        assert watch.memory_growth < 256 << 20
        figures = series(client)
        assert figures["oscine_listeners"] == figures["oscine_listeners_waiting"] == 0
        assert figures["oscine_running"] == figures["oscine_queue_depth"] == 0
    print(f"{statuses.count(200)} served, {statuses.count(429)} sent away; {watch}")
