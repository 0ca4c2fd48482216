"""The examples of the documentation are ones that work: Python is run, commands are parsed, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from oscine.cli.main import build_parser

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
RUN = [ROOT / "README.md", ROOT / "docs" / "quick_start.md"]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_oscine_commands_are_ones_the_parser_takes(page: Path) -> None:
    parser = build_parser()
    for line in "\n".join(blocks(page, "sh")).splitlines():
        for command in re.split(r"\s*(?:\||>|&&)\s*", line.split("  #")[0]):
            words = shlex.split(command, comments=True)
            if words[:1] == ["oscine"] and words[1:2] != ["bench"]:
                parser.parse_args(words[1:])


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_python_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(page, "python")
    assert found
    for code in found:
        exec(compile(code, page.name, "exec"), {})
    assert list(tmp_path.glob("*.wav"))


@pytest.mark.parametrize("family", ["AUDIO8", "AUDEX", "AUK"])
def test_sections_that_docstrings_cite_are_there(family: str) -> None:
    page = (ROOT / "docs" / "spec" / f"{family.lower()}.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^#+ (\d+(?:\.\d+)?)\b", page, re.M))
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    lists = re.findall(rf"{family} spec,\s+(?:sections? )?(\d[\d., and]*)", code)
    cited = {number for found in lists for number in re.findall(r"\d+(?:\.\d+)?", found)}
    assert cited
    assert cited <= headings


def test_the_architecture_names_every_room_and_no_other() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = page.split("```")[1]
    package = ROOT / "src" / "oscine"
    rooms = {path.name for path in package.iterdir() if (path / "__init__.py").is_file()}
    modules = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    named = {word for line in drawn.splitlines() for word in re.findall(r"[a-z]+", line.split("    ")[0])}
    assert named == rooms | modules
    for path in re.findall(r"`((?:[a-z_]+/)+[a-z_]*(?:\.py)?)`", page):
        assert path.startswith(("families/", "docs/", "static/", "tests/")) or (package / path).exists(), path
