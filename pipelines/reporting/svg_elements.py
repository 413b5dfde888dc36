"""SVG elements of the charts: text of known width, rectangles, legends and the picture around them.

Elements have classes and no colors: the page's style sheet colors them, so that one chart serves light, dark and
print. There is no script and no font of their own. Text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

# Size of every picture, in its own units; the page scales it.
WIDTH, HEIGHT = 480, 300

LEGEND_LEFT = 30
LEGEND_BASELINE = 16

_FONT_SIZE = 13  # as in the style sheet
# Widths of characters in DejaVu Sans, the widest of the usual fonts, in units of the font size.
_WIDTHS: dict[str, float] = {
    **dict.fromkeys(" ',.Iijl", 0.32),
    **dict.fromkeys("!()*-/:;[]frt|", 0.42),
    **dict.fromkeys("mw", 1.0),
}
_BOLD_FACTOR = 1.1


def text_width(text: str, bold: bool = False) -> float:
    """Upper bound of the width of a text in the usual fonts.

    Args:
      text: One line.
      bold: Whether it is drawn in bold.

    Returns:
      The width, in units of the picture.
    """
    sizes = (_WIDTHS.get(each, 0.64 if each.isdecimal() or each.islower() else 1.0) for each in text)
    return _FONT_SIZE * (_BOLD_FACTOR if bold else 1) * sum(sizes)


def max_text_width(texts: Iterable[str]) -> float:
    """Largest width of some texts.

    Args:
      texts: One line each.

    Returns:
      The width, in units of the picture; 0 without texts.
    """
    return max(map(text_width, texts), default=0.0)


def decimal(value: float, digits: int = 1) -> str:
    """Formats a coordinate in as few characters as possible.

    Args:
      value: The coordinate.
      digits: Digits after the decimal point, at most.

    Returns:
      The text, without trailing zeros.
    """
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"


def rectangle(kind: str, left: float, top: float, right: float, bottom: float) -> str:
    """Draws a rectangle.

    Args:
      kind: Class in the style sheet.
      left: Left edge.
      top: Upper edge.
      right: Right edge.
      bottom: Lower edge, larger than `top`.

    Returns:
      The element.
    """
    place = f'x="{decimal(left)}" y="{decimal(top)}"'
    return f'<rect class="{kind}" {place} width="{decimal(right - left)}" height="{decimal(bottom - top)}"/>'


def text_element(x: float, y: float, text: str, kind: str, anchor: str, rotated: bool = False) -> str:
    """Draws a line of text.

    Args:
      x: Position of the anchor.
      y: Baseline.
      text: The text, not escaped.
      kind: Class in the style sheet.
      anchor: Part of the text at `x`: start, middle or end.
      rotated: Whether the text runs upward.

    Returns:
      The element.
    """
    place = f'x="{decimal(x)}" y="{decimal(y)}"'
    if rotated:
        place = f'transform="translate({decimal(x)} {decimal(y)}) rotate(-90)"'
    return f'<text class="{kind}" {place} text-anchor="{anchor}">{Markup.escape(text)}</text>'


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Draws a legend in one line above the plot.

    Args:
      entries: Class and text of each entry. The class begins with "line" for lines and ends in "mark" for triangles;
        all others have a square.

    Returns:
      The elements.
    """
    parts, left = [], float(LEGEND_LEFT)
    for kind, text in entries:
        if kind.startswith("line"):
            parts.append(f'<path class="{kind}" d="M{decimal(left)} 12h22"/>')
        elif kind.endswith("mark"):
            parts.append(f'<path class="{kind}" d="M{decimal(left)} 8h8l-4 8z"/>')
        else:
            parts.append(rectangle(kind, left, 7, left + 12, 17))
        left += 28 if kind.startswith("line") else 18
        parts.append(text_element(left, LEGEND_BASELINE, text, "legend", "start"))
        left += text_width(text) + 14
    return "".join(parts)


def picture(title: str, description: str, parts: Iterable[str]) -> Markup:
    """Makes a picture that screen readers announce by a text.

    Args:
      title: First sentence of that text, without a full stop.
      description: The rest of it.
      parts: Elements of the picture, from back to front.

    Returns:
      The svg element, safe to insert into HTML.
    """
    alternative = Markup.escape(f"{title}. {description}".strip())
    return Markup(
        f'<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}" aria-label="{alternative}">' + "".join(parts) + "</svg>"
    )
