"""Pictures without a library: PNG of any bytes, JPEG of grey blocks."""
import struct
import zlib


def png(width, height, rgb):
    """rgb: three bytes a pixel, row by row."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + rgb[y * width * 3:(y + 1) * width * 3] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def jpeg(width, height, greys):
    """greys: one for each block of 8 x 8 pixels, which is all of that; width and height: multiples of 8."""
    def segment(kind, data):
        return bytes([0xFF, kind]) + struct.pack(">H", len(data) + 2) + data

    bits, before = "", 0
    for grey in greys:
        dc = 8 * (grey - 128)
        diff, before = dc - before, dc
        n = abs(diff).bit_length()
        bits += format(n, "04b")  # the code of a length is the length
        if n:
            bits += format(diff if diff > 0 else diff + (1 << n) - 1, "0%db" % n)
        bits += "0"  # no more in the block
    bits += "1" * (-len(bits) % 8)
    scan = bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8)).replace(b"\xff", b"\xff\0")
    return (b"\xff\xd8" + segment(0xDB, b"\0" + b"\1" * 64) +
            segment(0xC0, struct.pack(">BHHBBBB", 8, height, width, 1, 1, 0x11, 0)) +
            segment(0xC4, b"\0" + bytes([0, 0, 0, 12] + [0] * 12) + bytes(range(12))) +
            segment(0xC4, b"\x10" + bytes([1] + [0] * 15) + b"\0") +
            segment(0xDA, b"\1\1\0\0\x3f\0") + scan + b"\xff\xd9")
