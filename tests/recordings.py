"""Recordings for tests: good ones in every container that is read, damaged ones, and ones made to do harm."""

from __future__ import annotations

import base64
import io
import random
import struct
from collections.abc import Mapping
from functools import cache

import numpy as np
import soundfile as sf

RATE = 16_000
NUM_SAMPLES = 11_200


def tone(rate: int = RATE, seconds: float = NUM_SAMPLES / RATE, num_channels: int = 1) -> np.ndarray:
    """Float32 [frame, channel]: a tone and some noise, each channel a little softer than the one before."""
    rng = np.random.default_rng(0)
    moment = np.arange(round(rate * seconds)) / rate
    sound = 0.4 * np.sin(2 * np.pi * 300 * moment) + 0.05 * rng.standard_normal(len(moment))
    return np.stack([sound * (1 - 0.05 * channel) for channel in range(num_channels)], axis=1).astype(np.float32)


def by_sndfile(container: str, subtype: str, rate: int = RATE, num_channels: int = 2) -> bytes:
    buffer = io.BytesIO()
    sf.write(buffer, tone(rate, num_channels=num_channels), rate, format=container, subtype=subtype)
    return buffer.getvalue()


def by_ffmpeg(muxer: str, codec: str, rate: int = 48_000, layout: str = "stereo", **options: str) -> bytes:
    import av

    buffer = io.BytesIO()
    with av.open(buffer, "w", format=muxer, options=options) as output:
        stream = output.add_stream(codec, rate=rate, layout=layout)
        frame = av.AudioFrame.from_ndarray(
            tone(rate, num_channels=2 if layout == "stereo" else 1).T.copy(), format="fltp", layout=layout
        )
        frame.sample_rate = rate
        frame.pts = 0
        size = stream.codec_context.frame_size or 1024
        resampler = av.AudioResampler(format=stream.format.name, layout=layout, rate=rate, frame_size=size)
        for part in [*resampler.resample(frame), *resampler.resample(None)]:
            output.mux(stream.encode(part))
        output.mux(stream.encode(None))
    return buffer.getvalue()


@cache
def good() -> Mapping[str, bytes]:
    """A recording of 0.7 s in each container, and each codec in it, that this installation can write and read."""
    made = {
        f"{container}-{subtype}": by_sndfile(container, subtype, *arguments)
        for container, subtype, *arguments in (
            *(("WAV", subtype) for subtype in ("PCM_16", "PCM_U8", "FLOAT", "ULAW", "IMA_ADPCM", "MS_ADPCM")),
            ("WAV", "GSM610", RATE, 1),
            *(("WAVEX", "PCM_24"), ("RF64", "PCM_16"), ("W64", "PCM_16"), ("AIFF", "PCM_16"), ("AIFF", "IMA_ADPCM")),
            *(("AU", "PCM_16"), ("AU", "ULAW"), ("CAF", "PCM_16"), ("CAF", "ALAC_16"), ("FLAC", "PCM_16")),
            *(("FLAC", "PCM_24"), ("OGG", "VORBIS"), ("OGG", "OPUS", 48_000), ("MP3", "MPEG_LAYER_III")),
        )
    }
    made |= {
        "m4a-aac": by_ffmpeg("ipod", "aac"),
        "mp4-alac": by_ffmpeg("mp4", "alac"),
        "mp4-opus": by_ffmpeg("mp4", "libopus"),
        "mp4-fragments": by_ffmpeg("mp4", "aac", movflags="frag_keyframe+empty_moov"),
        "mov-pcm": by_ffmpeg("mov", "pcm_s16le"),
        "3gp-amr": by_ffmpeg("3gp", "libopencore_amrnb", 8000, "mono"),
        "webm-opus": by_ffmpeg("webm", "libopus"),
        "mka-flac": by_ffmpeg("matroska", "flac"),
        "ogg-flac": by_ffmpeg("ogg", "flac"),
        "adts-aac": by_ffmpeg("adts", "aac"),
        "amr": by_ffmpeg("amr", "libopencore_amrnb", 8000, "mono"),
        "wav-mp3": by_ffmpeg("wav", "libmp3lame"),
    }
    return made


def mutated(seed: int) -> tuple[str, bytes]:
    """The name of one of the good recordings, and it with up to eight damages, most of them in its header."""
    rng = random.Random(seed)
    name = sorted(good())[seed % len(good())]
    data = bytearray(good()[name])
    reach = min(len(data), rng.choice((64, 300, 2000, len(data))))
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        place = rng.randrange(reach)
        match rng.randrange(6):
            case 0:
                data[place : place + 1] = bytes([rng.randrange(256)])
            case 1:
                number = rng.choice((0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF))
                data[place : place + 4] = number.to_bytes(4, rng.choice(("big", "little")))
            case 2:
                del data[place : place + rng.choice((1, 2, 4, 50, 1000))]
            case 3:
                data[place:place] = data[place : place + rng.choice((4, 16, 100))]
            case 4:
                del data[rng.randrange(len(data) + 1) :]
            case 5:
                data[place : place + 1] = bytes(byte ^ 1 << rng.randrange(8) for byte in data[place : place + 1])
    return name, bytes(data)


# Made to do harm


def playlists(path: str) -> Mapping[str, bytes]:
    """Files that FFmpeg, left to itself, takes for audio elsewhere: in the file `path`, or on the network."""
    url = f"file://{path}"
    return {
        "ffconcat": f"ffconcat version 1.0\nfile {path}\n".encode(),
        "ffconcat of stdin": b"ffconcat version 1.0\nfile pipe:0\n",
        "ffconcat of a pattern": b"ffconcat version 1.0\nfile image2:/etc/%d.png\n",
        "m3u8": f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{url}\n#EXT-X-ENDLIST\n".encode(),
        "m3u8 with a key": f'#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI="{url}"\n#EXTINF:1,\n{url}\n'.encode(),
        "sdp": b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n",
        "dash": f'<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period><AdaptationSet '
        f'mimeType="audio/mp4"><Representation id="1"><BaseURL>{url}</BaseURL></Representation></AdaptationSet>'
        f"</Period></MPD>".encode(),
        "smooth streaming": b'<?xml version="1.0"?><SmoothStreamingMedia MajorVersion="2" Duration="1"/>',
        "image pattern": b"image2:%d.png",
        "asx": f'<asx version="3.0"><entry><ref href="{url}"/></entry></asx>'.encode(),
        "pls": f"[playlist]\nFile1={url}\nNumberOfEntries=1\n".encode(),
        "concat protocol": f"concat:{path}|{path}".encode(),
        "lavfi": b"amovie=/etc/passwd",
        "vivo": b"\x00\x00\rVersion:Vivo/1.00\r\n",
        "subfile": f"subfile,,start,0,end,100,,:{path}".encode(),
    }


def box(kind: bytes, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return struct.pack(">I4s", 8 + len(content), kind) + content


def m4a(num_samples: int, *, data: bytes = b"\0\1" * 2000, reference: bytes = b"", place: int = 0) -> bytes:
    """A QuickTime file of PCM whose tables claim `num_samples` packets, in another file if there is a `reference`."""
    full = b"\0" * 4
    entry = box(b"sowt", b"\0" * 6, struct.pack(">H", 1), b"\0" * 8, struct.pack(">HHHHI", 1, 16, 0, 0, RATE << 16))
    where = reference or box(b"url ", struct.pack(">I", 1))
    tables = [
        box(b"stsd", full, struct.pack(">I", 1), entry),
        box(b"stts", full, struct.pack(">III", 1, num_samples, 1024)),
        box(b"stsc", full, struct.pack(">IIII", 1, 1, num_samples, 1)),
        box(b"stsz", full, struct.pack(">II", 1, num_samples)),
        box(b"stco", full, struct.pack(">II", 1, place)),
    ]
    information = box(
        b"minf",
        box(b"smhd", full, full),
        box(b"dinf", box(b"dref", full, struct.pack(">I", 1), where)),
        box(b"stbl", *tables),
    )
    media = box(
        b"mdia",
        box(b"mdhd", full, struct.pack(">IIIII", 0, 0, RATE, RATE, 0)),
        box(b"hdlr", full, full, b"soun", b"\0" * 12, b"a\0"),
        information,
    )
    track = box(b"trak", box(b"tkhd", b"\0\0\0\7", struct.pack(">IIIII", 0, 0, 1, 0, RATE), b"\0" * 60), media)
    movie = box(b"moov", box(b"mvhd", full, struct.pack(">IIII", 0, 0, RATE, RATE), b"\0" * 80), track)
    return box(b"ftyp", b"qt  \0\0\0\0qt  ") + movie + box(b"mdat", data)


def alias(path: str, *, relative: bool = False) -> bytes:
    """An entry of a QuickTime file's `dref` that says that the audio is in the file `path`."""
    name = path.encode()
    levels = struct.pack(">HH", 1, 1 if relative else 0)
    record = b"\0" * 10 + b"\0" * 28 + b"\0" * 12 + b"\0" * 64 + b"\0" * 16 + levels + b"\0" * 16
    texts = struct.pack(">hh", 2, len(name)) + name + b"\0" * (len(name) % 2) + struct.pack(">hh", -1, 0)
    return box(b"alis", b"\0" * 4, record + texts)


_BLOCK = 65_535


def flac(rate: int, num_channels: int, seconds: float, *, stated: int | None = None) -> bytes:
    """A FLAC of a slow square wave, which takes next to no bytes; it states `stated` frames instead of those it has."""
    num_blocks = -(-round(rate * seconds) // _BLOCK)
    total = num_blocks * _BLOCK if stated is None else stated
    word = rate << 44 | (num_channels - 1) << 41 | 15 << 36 | total
    information = struct.pack(">HH", _BLOCK, _BLOCK) + b"\0" * 6 + word.to_bytes(8, "big") + b"\0" * 16
    frames = []
    for number in range(num_blocks):
        head = bytes((0xFF, 0xF8, 0x70, (num_channels - 1) << 4 | 8)) + chr(number).encode()
        head += struct.pack(">H", _BLOCK - 1)
        head += bytes([_crc(head, 8, 0x07)])
        subframe = b"\0" + struct.pack(">h", -9000 if number % 2 else 9000)  # constant
        frame = head + subframe * num_channels
        frames.append(frame + struct.pack(">H", _crc(frame, 16, 0x8005)))
    return b"fLaC" + b"\x80\0\0\x22" + information + b"".join(frames)


def _crc(data: bytes, width: int, polynomial: int) -> int:
    value, top, mask = 0, 1 << (width - 1), (1 << width) - 1
    for byte in data:
        value ^= byte << (width - 8)
        for _ in range(8):
            value = (value << 1 ^ polynomial if value & top else value << 1) & mask
    return value


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
