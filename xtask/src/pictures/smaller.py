"""Makes a picture of a browser smaller: at most 256 colours, and the strongest compression. Reads a PNG, writes a PNG."""

import struct
import sys
import zlib
from collections import Counter


def read(png):
    """The width, and the rows as bytes of three or four channels."""
    at, data = 8, b""
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, _, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and colour in (2, 6) and not interlace, "only true colours are read"
        if kind == b"IDAT":
            data += body
        at += 12 + length
    channels = 3 if colour == 2 else 4
    data, line = zlib.decompress(data), width * channels
    above, rows = bytearray(line), []
    for start in range(0, len(data), line + 1):
        how, row = data[start], bytearray(data[start + 1 : start + 1 + line])
        for x in range(line):
            left = row[x - channels] if x >= channels else 0
            corner = above[x - channels] if x >= channels else 0
            if how == 1:
                row[x] = row[x] + left & 255
            elif how == 2:
                row[x] = row[x] + above[x] & 255
            elif how == 3:
                row[x] = row[x] + (left + above[x]) // 2 & 255
            elif how == 4:
                guess = left + above[x] - corner
                far = [abs(guess - left), abs(guess - above[x]), abs(guess - corner)]
                row[x] = row[x] + (left, above[x], corner)[far.index(min(far))] & 255
        rows.append(row)
        above = row
    return width, [[tuple(row[x : x + 3]) for x in range(0, line, channels)] for row in rows]


def reduce(rows):
    """Maps each colour to the nearest of the 256 most frequent ones."""
    counts = Counter(pixel for row in rows for pixel in row)
    palette = [colour for colour, _ in counts.most_common(256)]
    index = {colour: number for number, colour in enumerate(palette)}
    for colour in counts:
        if colour not in index:
            index[colour] = min(range(len(palette)), key=lambda n: sum((a - b) ** 2 for a, b in zip(palette[n], colour)))
    return palette, [bytes(index[pixel] for pixel in row) for row in rows]


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def main():
    width, rows = read(sys.stdin.buffer.read())
    palette, rows = reduce(rows)
    data = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    header = struct.pack(">IIBBBBB", width, len(rows), 8, 3, 0, 0, 0)
    colours = b"".join(bytes(colour) for colour in palette)
    chunks = [(b"IHDR", header), (b"PLTE", colours), (b"IDAT", data), (b"IEND", b"")]
    sys.stdout.buffer.write(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*it) for it in chunks))


main()
