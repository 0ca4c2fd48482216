"""A folder of voices full of what is none: everybody speaks all the same."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as torch_save

from tests.server.conftest import SPEECH, body, reference_wav

from .harness import server_process

META = {"format": "oscine-voice-1", "family": "audio8"}
CODES = np.zeros((5, 6), np.int64)


def spoil(folder: Path) -> int:
    """Fills a folder with files that are no voices; returns how many."""
    torch_save({"codes": torch.zeros(5, 6, dtype=torch.bfloat16)}, folder / "half.safetensors", META)
    for name in ("default", "alloy"):
        save_file({"codes": CODES}, folder / f"{name}.safetensors", META)
    (folder / "loop.safetensors").symlink_to("loop.safetensors")
    (folder / "zero.safetensors").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe.safetensors")
    (folder / "junk.safetensors").write_bytes(b"\xff" * 100)
    (folder / "folder.safetensors").mkdir()
    with open(folder / "huge.safetensors", "wb") as huge:
        huge.truncate(1 << 40)
    return len(os.listdir(folder))


def test_files_that_are_no_voices_concern_nobody(tmp_path: Path) -> None:
    voices = tmp_path / "voices"
    voices.mkdir()
    bad = spoil(voices)
    (voices / ".gone.0123abcd.part").write_bytes(b"left by a killed process")
    with server_process(tmp_path) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        with server.watched() as watch:
            heard = [client.post(SPEECH, json=body(response_format="pcm")).content]
            for voice in ("alloy", "default", {"id": "nova"}):
                answer = client.post(SPEECH, json=body(response_format="pcm", voice=voice))
                assert answer.status_code == 200, answer.text
                heard.append(answer.content)
            listed = client.get("/v1/audio/voices").json()["voices"]
            for name, code in (("default", 400), ("Echo", 400), ("tone", 200), ("TONE", 409)):
                form = {"name": name, "ref_text": "A tone."}
                files = {"audio_sample": ("a.wav", reference_wav())}
                assert client.post("/v1/audio/voices", data=form, files=files).status_code == code, name
            assert client.post(SPEECH, json=body(voice="tone")).status_code == 200
            for name in ("half", "pipe", "zero", "unheard-of"):
                assert client.post(SPEECH, json=body(voice=name)).status_code == 404
        assert set(heard) == {heard[0]}, "a file in the folder changed everybody's voice"
        assert [voice["id"] for voice in listed] == ["default"]
        assert not watch.failures
        assert watch.memory_growth < 256 << 20
        assert server.log_text().count("is skipped") == bad
        assert sorted(path.name for path in voices.iterdir() if path.name.startswith((".", "tone"))) == [
            "tone.safetensors"
        ]
    print(watch)
