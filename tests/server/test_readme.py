"""The README's lines about the server, as a newcomer types them: the bundled voice, no options, and curl."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from .conftest import decode, ready, wait_until
from .test_cli_serve import address

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
@pytest.mark.timeout(400)
def test_serve_and_the_curl_line_give_an_mp3_that_plays(tmp_path: Path) -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    (serve,) = (line.split("#")[0].split() for line in lines if line.startswith("oscine serve"))
    (curl,) = (line for line in lines if line.startswith("curl") and "/v1/audio/speech" in line)
    command = [sys.executable, "-m", *serve, "--port", "0", "--voices-dir", str(tmp_path / "voices"), "--offline"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = address(process.stderr)
            wait_until(lambda: ready(url), 200)
            line, replaced = re.subn(r"localhost:\d+", url.removeprefix("http://"), curl)
            assert replaced == 1
            subprocess.run(line, shell=True, cwd=tmp_path, check=True, timeout=150)
        finally:
            process.terminate()
            process.communicate(timeout=60)
    samples, rate = decode((tmp_path / "hello.mp3").read_bytes())
    assert 0.3 < len(samples) / rate < 5.0  # "Hello."
    assert np.sqrt(np.mean(samples**2)) > 0.01
