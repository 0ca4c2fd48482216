"""The page in headless Chromium, over a real server with a tiny model."""

from __future__ import annotations

import base64
import io
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import soundfile as sf

import oscine
from oscine.engine.engine import Engine, EngineOptions
from oscine.server.app import create_app
from oscine.server.models import ModelRegistry, ModelSpec
from tests.server.conftest import CHECKPOINT, make_registry, reference_wav, serving
from tests.unit.auk_factory import write_released

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if BROWSER is None:
    pytest.skip("no Chromium here", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

AUDEX = CHECKPOINT.parents[1] / "audex" / "tiny_audex"
LONG = " ".join(f"Sentence number {n} is here, and it goes on for a little while longer." for n in range(60))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(create_app(make_registry(tmp_path_factory.mktemp("voices")))) as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    arguments = ["--no-sandbox", "--mute-audio", "--autoplay-policy=no-user-gesture-required"]
    arguments += ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=BROWSER, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Any]:
    """The loaded page; its console must stay clean."""
    context = browser.new_context(permissions=["microphone"])
    page = context.new_page()
    complaints: list[str] = []
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.complaints = complaints
    page.set_default_timeout(30_000)
    page.goto(url)
    page.wait_for_selector("#start:enabled")
    page.wait_for_selector("#option-seed", state="attached")
    yield page
    context.close()
    assert complaints == []


def fill_options(page: Any, **values: int) -> None:
    page.click("#more > summary")
    for name, value in values.items():
        page.fill(f"#option-{name}", str(value))


def status(page: Any, text: str) -> None:
    page.wait_for_function("text => document.querySelector('#status').value === text", arg=text)


def test_type_hear_see_and_download(page: Any, url: str, tmp_path: Path) -> None:
    fill_options(page, seed=7, max_new_tokens=24)
    page.fill("#text", "Hello world.")
    page.click("#start")
    status(page, "done")
    seconds = float(page.get_attribute("#result", "data-seconds"))
    with page.expect_download() as download:
        page.click("#download")
    samples, rate = sf.read(io.BytesIO(Path(download.value.path()).read_bytes()))
    assert rate == 44100
    assert seconds > 0
    assert len(samples) / rate == pytest.approx(seconds)
    assert abs(samples).max() > 0.01
    page.wait_for_function("() => document.querySelector('#again').duration > 0")
    facts = page.inner_text("#facts")
    assert "First audio" in facts
    assert "Real-time factor" in facts
    assert "Seed\n7" in facts
    fields = {"model": "tts-1", "input": "Hello world.", "seed": 7, "max_new_tokens": 24, "stream": False}
    reason = httpx.post(f"{url}/v1/audio/speech", json=fields, timeout=60).headers["x-finish-reason"]
    assert ("Ended" in facts) == (reason != "stop")
    for canvas in ("#waveform", "#spectrogram"):
        script = "e => new Set(e.getContext('2d').getImageData(0, 0, e.width, e.height).data).size"
        assert page.eval_on_selector(canvas, script) > 2, f"{canvas} is empty"
    page.screenshot(path=str(tmp_path / "page.png"), full_page=True)
    assert (tmp_path / "page.png").stat().st_size > 10_000


@pytest.mark.parametrize("how", ["button", "escape"])
def test_cancel(page: Any, how: str) -> None:
    fill_options(page, max_new_tokens=200)
    page.fill("#text", LONG)
    page.click("#start")
    page.wait_for_function("() => document.querySelector('#facts').childElementCount > 0")
    if how == "button":
        page.click("#cancel")
    else:
        page.keyboard.press("Escape")
    status(page, "cancelled")
    assert page.is_disabled("#cancel")
    assert page.is_hidden("#error")


def test_an_error_stays_until_it_is_dismissed(page: Any) -> None:
    page.fill("#text", "🙂")
    page.click("#start")
    page.wait_for_selector("#error:visible")
    assert "spoken" in page.inner_text("#error-text")
    page.fill("#text", "Hello.")
    assert page.is_visible("#error")
    page.click("#error-dismiss")
    assert page.is_hidden("#error")
    assert page.complaints.pop().startswith("Failed to load resource")  # Chromium's own note of the 400


def test_the_keyboard_is_enough_and_every_field_has_a_name(page: Any) -> None:
    fill_options(page, max_new_tokens=12)
    page.focus("#text")
    page.keyboard.press("Control+A")
    page.keyboard.type("Hello.")
    page.keyboard.press("Control+Enter")
    status(page, "done")
    nameless = page.eval_on_selector_all(
        "input, select, textarea, canvas, button",
        "all => all.filter(e => !(e.labels?.length || e.ariaLabel || e.textContent.trim())).map(e => e.id)",
    )
    assert nameless == []


def test_a_voice_from_a_file_is_made_used_and_deleted(page: Any) -> None:
    page.click("#voices > summary")
    page.fill("#voice-name", "tone")
    page.fill("#voice-text", "A tone.")
    file = {"name": "a.wav", "mimeType": "audio/wav", "buffer": reference_wav()}
    page.set_input_files("#voice-file", file)
    page.click("#voice-form button[type=submit]")
    page.wait_for_function("() => document.querySelector('#voice-status').value === 'saved tone'")
    assert page.input_value("#voice") == "tone"
    fill_options(page, max_new_tokens=12)
    page.click("#start")
    status(page, "done")
    page.click("#voice-delete")
    page.wait_for_function("() => document.querySelector('#voice-status').value === 'deleted tone'")
    assert "tone" not in page.inner_text("#voice")


def test_a_voice_from_the_microphone(page: Any) -> None:
    page.click("#voices > summary")
    page.click("#record")
    page.wait_for_selector("#record[aria-pressed=true]")
    page.wait_for_timeout(1500)
    page.click("#record")
    page.wait_for_function("() => document.querySelector('#voice-status').value === 'recorded'")
    page.fill("#voice-name", "beep")
    page.fill("#voice-text", "Beep.")
    page.click("#voice-form button[type=submit]")
    page.wait_for_function("() => document.querySelector('#voice-status').value === 'saved beep'")
    page.click("#voice-delete")
    page.wait_for_function("() => document.querySelector('#voice-status').value === 'deleted beep'")


def test_light_and_dark_differ_and_narrow_screens_do_not_scroll_sideways(page: Any) -> None:
    colours = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours[0] != colours[1]
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.fixture(scope="module")
def tasks_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a model that edits and one that makes sounds and hears."""
    if not AUDEX.is_dir():
        pytest.skip(f"no miniature Audex checkpoint in {AUDEX.parent}")
    engine = Engine(EngineOptions(memory_bytes=1 << 30))
    folders = {"auk": write_released(tmp_path_factory.mktemp("auk")), "audex": AUDEX}
    specs = [
        ModelSpec(id=name, load=partial(oscine.load, folder, device="cpu", engine=engine), num_bytes=1)
        for name, folder in folders.items()
    ]
    with serving(create_app(ModelRegistry(specs, engine))) as url:
        yield url


def test_the_other_tasks_follow_the_capability_record(page: Any, tasks_url: str) -> None:
    page.goto(tasks_url)
    page.wait_for_selector("#option-num_steps", state="attached")
    recording = {"name": "a.wav", "mimeType": "audio/wav", "buffer": reference_wav()}
    page.select_option("#task", "edit")
    page.set_input_files("#recording", recording)
    page.select_option("#edit", "pitch")
    page.select_option("#slot-direction", "up")
    fill_options(page, seed=1, num_steps=2)
    page.click("#start")
    status(page, "done")
    assert float(page.get_attribute("#result", "data-seconds")) == pytest.approx(1.0, abs=0.1)

    page.select_option("#model", "audex")
    page.wait_for_selector("#option-temperature", state="attached")
    page.select_option("#task", "sound")
    page.fill("#option-duration_s", "0.2")
    page.fill("#text", "rain")
    page.click("#start")
    page.wait_for_function("() => document.querySelector('#result').dataset.seconds < 0.3")
    page.fill("#option-duration_s", "")
    page.fill("#option-max_new_tokens", "8")
    page.select_option("#task", "transcribe")
    page.click("#start")
    page.wait_for_selector("#answer", state="attached")
    page.wait_for_function("() => document.querySelector('#facts').innerText.startsWith('Time')")
    page.select_option("#task", "ask")
    page.fill("#text", "What is this?")
    page.click("#start")
    page.wait_for_function("() => document.querySelector('#facts').innerText.includes('Seed')")
    status(page, "done")


def test_a_spoken_answer_is_read_and_heard(page: Any, tasks_url: str) -> None:
    """A miniature model has nothing to say, so that the answer is a staged one."""
    asked: list[Any] = []
    audio = {"data": base64.b64encode(reference_wav()).decode(), "transcript": "A tone."}

    def answer(route: Any) -> None:
        asked.append(route.request.post_data_json)
        route.fulfill(json={"choices": [{"message": {"audio": audio}}]})

    page.goto(tasks_url)
    page.wait_for_selector("#option-num_steps", state="attached")
    page.select_option("#model", "audex")
    page.wait_for_selector("#option-temperature", state="attached")
    page.route("**/v1/chat/completions", answer)
    page.select_option("#task", "converse")
    page.set_input_files("#recording", {"name": "a.wav", "mimeType": "audio/wav", "buffer": reference_wav()})
    page.click("#start")
    status(page, "done")
    assert page.inner_text("#answer") == "A tone."
    page.wait_for_function("() => Math.abs(document.querySelector('#again').duration - 1) < 0.1")
    (body,) = asked
    assert body["modalities"] == ["text", "audio"]
    assert [part["type"] for part in body["messages"][0]["content"]] == ["input_audio"]
