"""Audex's two codecs: the streaming speech decoder, and XCodec1 for sounds."""
