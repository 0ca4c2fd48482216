"""The store of named voices: what goes in comes out, names are safe, damage is skipped, writes are whole."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from oscine.checkpoint.voices import VoiceStore, data_home
from oscine.errors import InvalidRequest, OutputError, UnknownVoice, VoiceExists
from oscine.types import Voice

CODES = np.arange(30, dtype=np.int64).reshape(5, 6)


def voice(name: str = "ann", **fields: object) -> Voice:
    return Voice(**{"name": name, "family": "audio8", "codec": "c", "codes": CODES, "transcript": "Hi, ünï.", **fields})  # type: ignore[arg-type]


def test_round_trip(tmp_path: Path) -> None:
    store = VoiceStore(tmp_path / "new" / "voices")
    assert store.list() == []
    store.add(voice(description="d", language="de"))
    store.add(Voice(name="third", family="audex", speaker=3))
    ann, third = VoiceStore(store.directory).list()
    assert (ann.name, ann.family, ann.codec, ann.transcript, ann.description, ann.language, ann.speaker) == (
        "ann", "audio8", "c", "Hi, ünï.", "d", "de", None,
    )  # fmt: skip
    assert ann.codes is not None
    assert ann.codes.dtype == np.int64
    np.testing.assert_array_equal(ann.codes, CODES)
    assert (third.speaker, third.codes, third.transcript) == (3, None, None)
    assert store.get("ann").name == "ann"
    store.remove("ann")
    assert [v.name for v in store.list()] == ["third"]
    assert os.listdir(store.directory) == ["third.safetensors"]


@pytest.mark.parametrize("name", ["", ".", "..", ".a", "a/b", "../a", "a b", "a\n", "-a", "é", "a" * 65, "a\0"])
def test_names_that_are_no_file_names(tmp_path: Path, name: str) -> None:
    store = VoiceStore(tmp_path)
    with pytest.raises(InvalidRequest, match="cannot name a voice"):
        store.add(voice(name))
    with pytest.raises(UnknownVoice):
        store.remove(name)
    assert os.listdir(tmp_path) == []


def test_names_are_taken_once(tmp_path: Path) -> None:
    store = VoiceStore(tmp_path)
    store.add(voice())
    for name in ("ann", "ANN"):
        with pytest.raises(VoiceExists):
            store.add(voice(name))
    for name in ("bob", "Ann"):
        with pytest.raises(UnknownVoice, match="stored: ann"):
            store.get(name)
        with pytest.raises(UnknownVoice):
            store.remove(name)


def test_damaged_files_are_skipped_said_once_and_can_be_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = VoiceStore(tmp_path)
    store.add(voice())
    (tmp_path / "junk.safetensors").write_bytes(b"junk")
    save_file({"codes": CODES}, tmp_path / "other.safetensors")
    meta = {"format": "oscine-voice-1", "family": "audio8"}
    save_file({"codes": CODES.astype(np.float32)}, tmp_path / "floats.safetensors", meta)
    save_file({"codes": CODES - 1}, tmp_path / "negative.safetensors", meta)
    with caplog.at_level("WARNING"):
        for _ in range(3):
            assert [v.name for v in store.list()] == ["ann"]
    assert len(caplog.records) == 4
    store.remove("junk")
    assert not (tmp_path / "junk.safetensors").exists()


def test_another_process_is_seen(tmp_path: Path) -> None:
    first, second = VoiceStore(tmp_path), VoiceStore(tmp_path)
    first.add(voice())
    assert second.get("ann").transcript == "Hi, ünï."
    first.remove("ann")
    first.add(voice(transcript="Changed, and longer."))
    assert second.get("ann").transcript == "Changed, and longer."


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="cannot store"):
        VoiceStore(tmp_path / "file" / "voices").add(voice())


def test_where_data_lives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OSCINE_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_home() == tmp_path / ".local" / "share" / "oscine"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert data_home() == tmp_path / "xdg" / "oscine"
    monkeypatch.setenv("OSCINE_HOME", str(tmp_path / "own"))
    assert VoiceStore().directory == tmp_path / "own" / "voices"
