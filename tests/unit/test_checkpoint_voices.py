"""The store of named voices: what goes in comes out, names are safe, damage is skipped, writes are whole."""

from __future__ import annotations

import itertools
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as torch_save

from oscine.checkpoint.voices import MAX_FILE_BYTES, VoiceStore, data_home
from oscine.errors import InvalidRequest, OutputError, UnknownVoice, VoiceExists
from oscine.types import Voice

DATA = Path(__file__).parent / "data"
CODES = np.arange(30, dtype=np.int64).reshape(5, 6)


def voice(name: str = "ann", **fields: object) -> Voice:
    return Voice(
        **{
            "name": name,
            "family": "audio8",
            "codec": "c",
            "tensors": {"codes": CODES},
            "transcript": "Hi, ünï.",
            **fields,
        }
    )  # type: ignore[arg-type]


def test_round_trip(tmp_path: Path) -> None:
    store = VoiceStore(tmp_path / "new" / "voices")
    assert store.list() == []
    store.add(voice(description="d", language="de"))
    store.add(Voice(name="third", family="audex", speaker=3))
    ann, third = VoiceStore(store.directory).list()
    assert (ann.name, ann.family, ann.codec, ann.transcript, ann.description, ann.language, ann.speaker) == (
        "ann", "audio8", "c", "Hi, ünï.", "d", "de", None,
    )  # fmt: skip
    assert ann.tensors["codes"].dtype == np.int64
    np.testing.assert_array_equal(ann.tensors["codes"], CODES)
    assert (ann.version, third.version, third.speaker, third.tensors, third.transcript) == (1, 1, 3, {}, None)
    assert store.get("ann").name == "ann"
    store.remove("ann")
    assert [v.name for v in store.list()] == ["third"]
    assert os.listdir(store.directory) == ["third.safetensors"]


def test_voices_of_earlier_releases_load(tmp_path: Path) -> None:
    """Files that the first format's own code wrote."""
    for path in DATA.glob("voice_format_1_*.safetensors"):
        shutil.copy(path, tmp_path / path.name.removeprefix("voice_format_1_"))
    ann, tag = VoiceStore(tmp_path).list()
    assert (ann.name, ann.family, ann.codec, ann.version) == ("Ann", "audio8", "0123456789ab", 1)
    assert (ann.transcript, ann.description, ann.language, ann.speaker) == ("Hi, ünï.", "d", "de", None)
    np.testing.assert_array_equal(ann.tensors["codes"], np.arange(12).reshape(3, 4))
    assert (tag.name, tag.speaker, tag.tensors) == ("tag", 3, {})


def test_a_family_that_is_not_installed_keeps_its_tensors(tmp_path: Path) -> None:
    tensors = {"style": np.linspace(0, 1, 7, dtype=np.float32), "pitch": np.array(3.5)}
    VoiceStore(tmp_path).add(voice(family="elsewhere", version=4, tensors=tensors))
    (ann,) = VoiceStore(tmp_path).list()
    assert (ann.family, ann.version, set(ann.tensors)) == ("elsewhere", 4, {"style", "pitch"})
    for name, value in tensors.items():
        assert ann.tensors[name].dtype == value.dtype
        np.testing.assert_array_equal(ann.tensors[name], value)


def test_a_voice_of_a_later_version_or_with_other_tensors_is_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = VoiceStore(tmp_path)
    store.add(voice("later", version=2))
    store.add(voice("more", tensors={"codes": CODES, "style": CODES}))
    store.add(voice("none", tensors={}))
    with caplog.at_level("WARNING"):
        assert store.list() == []
    for words in ("its version is 2", "its tensors are codes, style", "its tensors are none"):
        assert words in caplog.text


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
    store.add(voice("Bob"))
    with pytest.raises(VoiceExists):
        store.add(voice("bob"))
    assert store.get("Bob").name == "Bob"
    for name in ("bob", "Ann"):
        with pytest.raises(UnknownVoice, match="stored: Bob, ann"):
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
    torch_save({"codes": torch.zeros(5, 6, dtype=torch.bfloat16)}, tmp_path / "half.safetensors", meta)
    save_file({"codes": CODES}, tmp_path / "speaker.safetensors", meta | {"speaker": "one"})
    save_file({"codes": CODES}, tmp_path / "a b.safetensors", meta)
    save_file({"codes": CODES}, tmp_path / "default.safetensors", meta)
    save_file({"codes": CODES}, tmp_path / "Nova.safetensors", meta)
    (tmp_path / "empty.safetensors").touch()
    (tmp_path / "loop.safetensors").symlink_to("loop.safetensors")
    (tmp_path / "link.safetensors").symlink_to("ann.safetensors")
    (tmp_path / "zero.safetensors").symlink_to("/dev/zero")
    (tmp_path / "folder.safetensors").mkdir()
    os.mkfifo(tmp_path / "pipe.safetensors")
    with open(tmp_path / "large.safetensors", "wb") as large:
        large.truncate(MAX_FILE_BYTES + 1)
    bad = len(os.listdir(tmp_path)) - 1
    with caplog.at_level("WARNING"):
        for _ in range(3):
            assert [v.name for v in store.list()] == ["ann"]
    assert len(caplog.records) == bad == 16
    for name in ("junk", "default", "a b", "loop", "pipe"):
        store.remove(name)
        assert not os.path.lexists(tmp_path / f"{name}.safetensors")
    with pytest.raises(OutputError, match="cannot remove"):
        store.remove("folder")


def test_files_of_earlier_releases_are_voices_under_the_names_of_their_files(tmp_path: Path) -> None:
    meta = {"format": "oscine-voice-1", "family": "audio8", "name": "Ann"}
    save_file({"codes": CODES}, tmp_path / "Ann.safetensors", meta)
    save_file({"codes": CODES}, tmp_path / "copy.safetensors", meta)
    store = VoiceStore(tmp_path)
    assert [v.name for v in store.list()] == ["Ann", "copy"]
    with pytest.raises(VoiceExists):
        store.add(voice("ann"))
    store.remove("Ann")
    store.add(voice("ann"))
    assert [v.name for v in store.list()] == ["ann", "copy"]


@pytest.mark.parametrize("name", ["default", "Default", "alloy", "VERSE"])
def test_names_with_a_meaning_of_their_own_are_refused(tmp_path: Path, name: str) -> None:
    """A stored voice called `default` used to replace everyone's default."""
    with pytest.raises(InvalidRequest, match="reserved"):
        VoiceStore(tmp_path).add(voice(name))
    assert os.listdir(tmp_path) == []


def test_of_names_that_differ_by_case_one_is_stored_however_many_try(tmp_path: Path) -> None:
    spellings = ["".join(letters) for letters in itertools.product("Tt", "Oo", "Nn", "Ee")]
    results: list[str] = []
    start = threading.Barrier(len(spellings))

    def store(name: str) -> None:
        one = VoiceStore(tmp_path)
        one.check_new(name)  # all have found the name to be free before the first is stored
        start.wait()
        try:
            one.add(voice(name))
            results.append(name)
        except VoiceExists:
            results.append("")

    threads = [threading.Thread(target=store, args=[name]) for name in spellings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == len(spellings)
    (stored,) = filter(None, results)
    assert [v.name for v in VoiceStore(tmp_path).list()] == [stored]
    assert len(os.listdir(tmp_path)) == 1


def test_a_voice_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def noting(name: str) -> None:
        real = getattr(os, name)

        def note(*arguments: Any) -> Any:
            kind = stat.S_ISDIR(os.fstat(arguments[0]).st_mode) if name == "fsync" else False
            done.append(f"{name} folder" if kind else name)
            return real(*arguments)

        monkeypatch.setattr(os, name, note)

    noting("fsync")
    noting("link")
    VoiceStore(tmp_path / "voices").add(voice())
    assert done == ["fsync folder", "fsync", "link", "fsync folder"]


_KILLED = """
import os, sys
import numpy as np
from oscine.checkpoint.voices import VoiceStore
from oscine.types import Voice

def stuck(*paths):
    print("at work", flush=True)
    sys.stdin.read()

os.link = stuck
codes = np.ones((2, 3), np.int64)
VoiceStore(sys.argv[1]).add(Voice(name="bob", family="audio8", tensors={"codes": codes}, transcript="Hi."))
"""


def test_what_a_killed_process_leaves_is_removed_and_what_a_live_one_writes_is_not(tmp_path: Path) -> None:
    store = VoiceStore(tmp_path)
    store.add(voice())
    command = [sys.executable, "-c", _KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"at work\n"
        store.clean()
        assert len(os.listdir(tmp_path)) == 2
        writer.kill()
    assert len(os.listdir(tmp_path)) == 2
    (tmp_path / ".keep").touch()
    store.clean()
    assert sorted(os.listdir(tmp_path)) == [".keep", "ann.safetensors"]
    assert [v.name for v in store.list()] == ["ann"]


def test_another_process_is_seen(tmp_path: Path) -> None:
    first, second = VoiceStore(tmp_path), VoiceStore(tmp_path)
    first.add(voice())
    assert second.get("ann").transcript == "Hi, ünï."
    first.remove("ann")
    first.add(voice(transcript="Changed, and longer."))
    assert second.get("ann").transcript == "Changed, and longer."


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    for folder in (tmp_path / "file" / "voices", tmp_path / "file", tmp_path / "loop"):
        with pytest.raises(OutputError, match="cannot store"):
            VoiceStore(folder).add(voice())
        assert VoiceStore(folder).list() == []


def test_where_data_lives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OSCINE_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_home() == tmp_path / ".local" / "share" / "oscine"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert data_home() == tmp_path / "xdg" / "oscine"
    monkeypatch.setenv("OSCINE_HOME", str(tmp_path / "own"))
    assert VoiceStore().directory == tmp_path / "own" / "voices"
