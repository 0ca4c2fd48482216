"""Books as files: chapters, headings, breaks, metadata and covers are found, and what is no book is refused."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from oscine.books import epub
from oscine.books.document import Block, into_chapters, paragraph_block
from oscine.books.html import parse_html
from oscine.books.plain import parse_markdown, parse_plain
from oscine.books.reader import read_book
from oscine.errors import InvalidRequest
from tests.books import page, png, three_chapters, write_epub


def heads(blocks: list[Block]) -> list[tuple[str, str]]:
    return [(block.kind, block.text) for block in blocks]


@pytest.mark.parametrize("version", [2, 3])
def test_an_epub_has_its_chapters_metadata_and_cover(tmp_path: Path, version: int) -> None:
    book = read_book(three_chapters(tmp_path / "book.epub", version=version))
    assert (book.title, book.author, book.language, book.date) == ("The Lamp", "A. Writer", "en", "2020-05-01")
    assert [chapter.title for chapter in book.chapters] == ["Chapter 1", "Chapter 2", "Chapter 3"]
    assert book.chapters[1].text == "# Chapter 2\n\nIt was day 2. The lamp was lit.\n\nNobody came."
    assert book.cover is not None
    assert (book.cover.data, book.cover.media_type) == (png(), "image/png")


def test_several_chapters_of_one_document_begin_at_their_ids_and_a_document_may_go_on(tmp_path: Path) -> None:
    documents = [
        ("a.xhtml", page('<h2 id="one">I</h2><p>First.</p><h2 id="two">II</h2><p>Second.</p>')),
        ("b.xhtml", page("<p>Still the second.</p>")),
        ("c%20d.xhtml", page("<h2>III</h2><p>Third.</p>")),
    ]
    contents = [("a.xhtml#one", "One"), ("a.xhtml#two", "Two"), ("c%20d.xhtml", "Three")]
    path = write_epub(tmp_path / "book.epub", documents, contents=contents)
    with zipfile.ZipFile(path, "a") as archive:  # a link names the file in the encoding of addresses
        archive.writestr("OPS/c d.xhtml", documents[2][1])
    book = read_book(path)
    assert [(chapter.title, chapter.text) for chapter in book.chapters] == [
        ("One", "## I\n\nFirst."),
        ("Two", "## II\n\nSecond.\n\nStill the second."),
        ("Three", "## III\n\nThird."),
    ]


def test_without_a_table_of_contents_headings_begin_chapters(tmp_path: Path) -> None:
    documents = [("a.xhtml", page("<h1>One</h1><p>First.</p><h2>Below</h2><p>More.</p><h1>Two</h1><p>Second.</p>"))]
    book = read_book(write_epub(tmp_path / "book.epub", documents))
    assert [chapter.title for chapter in book.chapters] == ["One", "Two"]
    assert book.chapters[0].text == "# One\n\nFirst.\n\n## Below\n\nMore."


def test_notes_pages_scripts_and_tables_of_contents_are_not_read(tmp_path: Path) -> None:
    body = (
        '<h1>One</h1><p>Seen<a epub:type="noteref" href="#n">1</a> by'
        '<span epub:type="pagebreak" title="7">7</span> all.</p><script>alert("x")</script>'
        '<aside epub:type="footnote" id="n"><p>A note.</p></aside><p>H<sub>2</sub>O</p>'
    )
    book = read_book(write_epub(tmp_path / "b.epub", [("a.xhtml", page(body))], contents=[("a.xhtml", "One")]))
    assert [chapter.text for chapter in book.chapters] == ["# One\n\nSeen by all.\n\nH₂O"]


def test_elements_that_are_left_out_end_where_they_end() -> None:
    blocks, title = parse_html(
        "<title>T &amp; U</title><svg><svg/><svg><text>no</text></svg></svg><p>yes<br>and<img src='x'> so<br/>on</p>"
        "<select><option>no</option></select>rest"
    )
    assert title == "T & U"
    assert heads(blocks) == [("paragraph", "yes"), ("paragraph", "and so"), ("paragraph", "on"), ("paragraph", "rest")]


@pytest.mark.parametrize("text", ["* * *", "***", "⁂", "~", "#", "—", "• • •", "[***]"])
def test_a_line_of_marks_is_a_scene_break(text: str) -> None:
    assert paragraph_block(text) == Block(kind="scene_break")


@pytest.mark.parametrize("text", ["...", "?", "* a", "12", "“"])
def test_other_short_lines_are_paragraphs(text: str) -> None:
    assert paragraph_block(text) == Block(kind="paragraph", text=text)


def test_scene_breaks_stand_inside_chapters_and_not_at_their_ends(tmp_path: Path) -> None:
    body = "<h1>One</h1><hr/><p>A.</p><p>* * *</p><p>B.</p><hr/><h1>Two</h1><p>C.</p>"
    book = read_book(write_epub(tmp_path / "book.epub", [("a.xhtml", page(body))]))
    assert [chapter.text for chapter in book.chapters] == ["# One\n\n* * *\n\nA.\n\n* * *\n\nB.", "# Two\n\nC."]


def test_words_that_look_like_markup_stay_words(tmp_path: Path) -> None:
    body = "<h1>One</h1><p>3 * 4 is a_b_c, x &lt;y&gt;.</p><p># no heading</p><p>1. no list</p><p>- no item</p>"
    text = read_book(write_epub(tmp_path / "book.epub", [("a.xhtml", page(body))])).chapters[0].text
    from oscine.text.clean import clean_text

    assert clean_text(text) == "One.\n\n3 * 4 is a_b_c, x <y>.\n\n# no heading.\n\n1. no list.\n\n- no item."


def test_plain_text_has_chapter_lines_and_capitals() -> None:
    text = (
        "THE LAMP\n\nCHAPTER I\n\nTHE STORM\n\nIt rained\nall day.\n\nSTOP!\n\n"
        "Chapter Two: Sun\n\nThe chapter I read.\n"
    )
    blocks = parse_plain(text)
    assert [(block.kind, block.level, block.text) for block in blocks] == [
        ("heading", 2, "THE LAMP"),
        ("heading", 1, "CHAPTER I"),
        ("heading", 2, "THE STORM"),
        ("paragraph", 0, "It rained all day."),
        ("paragraph", 0, "STOP!"),
        ("heading", 1, "Chapter Two: Sun"),
        ("paragraph", 0, "The chapter I read."),
    ]
    _, chapters = into_chapters(blocks)
    assert [chapter.title for chapter in chapters] == ["THE LAMP. CHAPTER I. THE STORM", "Chapter Two: Sun"]


def test_markdown_has_front_matter_and_one_title_above_its_chapters(tmp_path: Path) -> None:
    path = tmp_path / "book.md"
    path.write_text(
        "---\ntitle: The *Lamp*\nauthor: [A. Writer, B. Writer]\n---\n\n# The Lamp\n\n## One\n\nSome *words*.\n\n"
        "---\n\n- an item\n- another\n\n## Two\n\nEnd.\n",
        encoding="utf-8",
    )
    book = read_book(path)
    assert (book.title, book.author) == ("The *Lamp*", "A. Writer, B. Writer")
    assert [chapter.title for chapter in book.chapters] == ["The Lamp. One", "Two"]
    assert heads(list(book.chapters[0].blocks))[2:] == [
        ("paragraph", "Some words."),
        ("scene_break", ""),
        ("paragraph", "an item"),
        ("paragraph", "another"),
    ]


def test_a_title_that_is_only_a_heading_names_the_book() -> None:
    title, chapters = into_chapters(parse_markdown("# Lamp\n\n## One\n\nA.\n\n## Two\n\nB.")[0])
    assert (title, [chapter.title for chapter in chapters]) == ("Lamp", ["One", "Two"])


def test_html_is_decoded_as_it_declares(tmp_path: Path) -> None:
    path = tmp_path / "book.html"
    path.write_bytes('<meta charset="latin-1"><title>Été</title><h1>Été</h1><p>Là.</p>'.encode("latin-1"))
    book = read_book(path)
    assert (book.title, [chapter.text for chapter in book.chapters]) == ("Été", ["# Été\n\nLà."])


def test_a_book_without_words_or_with_bytes_that_are_no_text_is_refused(tmp_path: Path) -> None:
    for name, data, said in (
        ("a.txt", b"***\n\n...", "nothing that can be spoken"),
        ("b.txt", b"\xff\xfe\x00", "not utf-8-sig text"),
        ("c.html", b'<meta charset="klingon">', "unknown encoding"),
        ("d.md", b"---\na: [\n---\nx", "front matter"),
        ("e.epub", b"PK\x03\x04 no", "no EPUB"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InvalidRequest, match=said):
            read_book(tmp_path / name)
    with pytest.raises(InvalidRequest, match="cannot read"):
        read_book(tmp_path / "missing.epub")
    (tmp_path / "cover.png").write_bytes(b"GIF89a")
    with pytest.raises(InvalidRequest, match="neither a PNG nor a JPEG"):
        read_book(three_chapters(tmp_path / "f.epub"), cover=tmp_path / "cover.png")


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epub, "MAX_FILE_BYTES", 2000)
    path = write_epub(tmp_path / "book.epub", [("a.xhtml", page("<p>" + "a" * 3000 + "</p>"))])
    assert path.stat().st_size < 2000
    with pytest.raises(InvalidRequest, match="unpacks to too much"):
        read_book(path)


def test_entities_encryption_and_missing_files_are_refused(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><ncx><navMap/></ncx>'
    drm = '<encryption><EncryptedData><EncryptionMethod Algorithm="http://www.w3.org/2001/04/xmlenc#aes128-cbc"/></EncryptedData></encryption>'
    document = ("a.xhtml", page("<p>Words.</p>"))
    for name, extra, said in (
        ("a.epub", ("OPS/toc.ncx", bomb), "entities"),
        ("b.epub", ("META-INF/encryption.xml", drm), "DRM"),
        ("c.epub", ("META-INF/container.xml", "<container/>"), "no package document"),
    ):
        path = write_epub(tmp_path / name, [document], version=2, contents=[("a.xhtml", "A")], extra=[extra])
        with pytest.raises(InvalidRequest, match=said):
            read_book(path)
    path = tmp_path / "d.epub"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
    with pytest.raises(InvalidRequest, match=r"lacks its file 'META-INF/container\.xml'"):
        read_book(path)
