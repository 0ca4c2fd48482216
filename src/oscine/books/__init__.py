"""Books: reading chapters from EPUB, HTML, Markdown and plain text, and narrating them into marked audio files."""
