"""Charts as SVG: horizontal bars on a logarithmic axis, lines on two of them. No dependency."""
import math
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TOP, BAR, GAP = 760, 190, 80, 58, 20, 8
LETTER = 6.5  # px of a label, on average
FIRST, OTHER, INK, FAINT = "#1f6feb", "#9aa4b2", "#1b1f24", "#d8dee4"


def number(v):
    """Three digits, without an exponent."""
    digits = max(0, 2 - math.floor(math.log10(v)))
    return "%.*f" % (min(digits, 3), v)


def text(x, y, s, anchor="start", size=12, weight="normal"):
    return ('<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d" font-weight="%s" fill="%s">'
            '%s</text>' % (x, y, anchor, size, weight, INK, escape(s)))


def ticks(low, high):
    """1, 2 and 5 of each decade, of a short axis; else the decades."""
    decades = range(round(math.log10(low)), round(math.log10(high)) + 1)
    parts = (1, 2, 5) if len(decades) < 4 else (1,)
    return [m * 10.0 ** d for d in decades for m in parts if m * 10.0 ** d <= high]


def begin(height, title, note):
    """The parts of a chart, to which more are added."""
    return ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
            'font-family="sans-serif">' % ((WIDTH, height) * 2),
            '<rect width="100%" height="100%" fill="white"/>',
            text(12, 22, title, size=15, weight="bold"), text(12, 41, note)]


def end(path, parts):
    with open(path, "w") as f:
        f.write("\n".join(parts) + "\n</svg>\n")


def bars(path, title, note, unit, rows):
    """rows: [(label, value > 0)]; the first one is ours, and stands out."""
    values = [v for _, v in rows]
    low = 10.0 ** math.floor(math.log10(min(values) * 0.999))
    high = 10.0 ** math.ceil(math.log10(max(values)))
    bottom = TOP + len(rows) * (BAR + GAP)
    left = max(LEFT, 20 + LETTER * max(len(label) for label, _ in rows))

    def at(v):
        return left + (WIDTH - left - RIGHT) * math.log10(v / low) / math.log10(high / low)

    out = begin(bottom + 34, title, note)
    for t in ticks(low, high):
        out.append('<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="%s"/>' % (
            at(t), at(t), TOP - 4, bottom, FAINT))
        out.append(text(at(t), bottom + 16, "%g" % t, "middle", 11))
    out.append(text(WIDTH - 12, bottom + 16, unit, "end", 11))
    for i, (label, v) in enumerate(rows):
        y = TOP + i * (BAR + GAP)
        out.append(text(left - 8, y + 15, label, "end"))
        out.append('<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>' % (
            left, y, max(at(v) - left, 1), BAR, OTHER if i else FIRST))
        out.append(text(at(v) + 6, y + 15, number(v)))
    end(path, out)


COLOURS = ("#1f6feb", "#cf222e", "#2da44e", "#9a6700", "#8250df", "#0a7ea4", "#6e7781", "#9aa4b2")


def lines(path, title, note, x_unit, y_unit, rows):
    """Both axes are logarithmic. rows: [(label, [(x, y > 0)], dashed)]; labels stand at the end."""
    xs = [x for _, points, _ in rows for x, _ in points]
    ys = [y for _, points, _ in rows for _, y in points]
    low = 10.0 ** math.floor(math.log10(min(ys)))
    high = 10.0 ** math.ceil(math.log10(max(ys)))
    left, right, bottom = 64, 230, TOP + 320

    def at_x(x):
        return left + (WIDTH - left - right) * math.log10(x / min(xs)) / math.log10(
            max(xs) / min(xs))

    def at_y(y):
        return bottom - (bottom - TOP) * math.log10(y / low) / math.log10(high / low)

    out = begin(bottom + 40, title, note)
    for t in ticks(low, high):
        out.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="%s"/>' % (
            left, WIDTH - right, at_y(t), at_y(t), FAINT))
        out.append(text(left - 6, at_y(t) + 4, "%g" % t, "end", 11))
    for x in sorted(set(xs)):
        out.append('<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="%s"/>' % (
            at_x(x), at_x(x), TOP, bottom, FAINT))
        out.append(text(at_x(x), bottom + 16, "{:,}".format(x), "middle", 11))
    out.append(text((left + WIDTH - right) / 2, bottom + 34, x_unit, "middle", 11))
    out.append(text(left, TOP - 6, y_unit, size=11))
    taken = []
    for i, (label, points, dashed) in enumerate(rows):
        colour = COLOURS[i % len(COLOURS)]
        out.append('<polyline fill="none" stroke="%s" stroke-width="2"%s points="%s"/>' % (
            colour, ' stroke-dasharray="6 4"' if dashed else "",
            " ".join("%.1f,%.1f" % (at_x(x), at_y(y)) for x, y in points)))
        y = at_y(points[-1][1]) + 4
        while any(abs(y - other) < 14 for other in taken):  # labels must not overlap
            y += 2
        taken.append(y)
        out.append('<text x="%.1f" y="%.1f" font-size="12" fill="%s">%s</text>' % (
            at_x(points[-1][0]) + 8, y, colour, escape(label)))
    end(path, out)
