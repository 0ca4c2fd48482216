"""Ogg pages with a serial number of our choice (RFC 3533, 6): libsndfile draws one at random for every stream."""

from __future__ import annotations

import struct
import zlib

from oscine.seeds import derive_seed

_MIRRORED = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))
_FIXED = 27  # bytes of a page's header before its table of segments
_SERIAL, _CHECKSUM = slice(14, 18), slice(22, 26)


def serial_of(seed: int) -> int:
    """The serial number, 32 bits, of the stream that a request with this seed gives."""
    return derive_seed(seed, 0, 0, 1) & 0xFFFFFFFF


def checksum(page: bytes) -> int:
    """CRC-32 of a page whose checksum field is zero: polynomial 0x04C11DB7, most significant bit first, from zero.

    zlib's is of the same polynomial with every bit order mirrored, and inverted before and after.
    """
    mirrored = zlib.crc32(page.translate(_MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{mirrored:032b}"[::-1], 2)


def with_serial(pages: bytes, serial: int) -> bytes:
    """`pages`, whole ones, as pages of the stream `serial`."""
    out = bytearray(pages)
    begin = 0
    while begin < len(out):
        body = begin + _FIXED + out[begin + 26]
        end = body + sum(out[begin + _FIXED : body])
        if out[begin : begin + 4] != b"OggS" or end > len(out):
            raise ValueError(f"no whole Ogg page at byte {begin} of {len(out)}")
        page = out[begin:end]
        page[_SERIAL], page[_CHECKSUM] = struct.pack("<I", serial), bytes(4)
        page[_CHECKSUM] = struct.pack("<I", checksum(bytes(page)))
        out[begin:end] = page
        begin = end
    return bytes(out)
