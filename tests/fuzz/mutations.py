"""Mutations of valid inputs: of bytes, of JSON documents and of numbers in text."""

import copy
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

NUMBERS = (
    "0", "-0", "-0.0", "1", "-1", "1.0", "0.5", "2", "5e-324", "1e-300", "1e308", "-1e308", "1.7976931348623157e308",
    "1e309", "-1e400", "1e-400", "9007199254740993", "4611686018427387904", "9223372036854775807",
    "9223372036854775808", "18446744073709551616", "-9223372036854775809", "1" + "0" * 400, "1" * 5000, "NaN",
    "Infinity", "-Infinity", "nan", "inf", "1_000", "0x10", "01", "+1", ".5", "1e", "1/2", "\u0661", "0.1", "31337.25",
)  # fmt: skip
"""Numbers at the edges of types, and texts that some parsers take for numbers."""

TEXTS = (
    "", " ", "\0", "a\0b", "a\nb", "a\rb", "\x1b[2J", "\ud800", "\udc80", "\ufeff", "\u2028", "\U0001f600", "y", "f",
    "nearest", "<b>", "{{", "%s", "../..", "a" * 300, "b" * 70_000, "\u200f", "true", "null",
)  # fmt: skip
"""Texts that are hard to print, to encode or to use as a name."""

JSON_TOKENS = (
    *NUMBERS[:-1], *map(json.dumps, TEXTS), "null", "true", "false", "[]", "{}", "[[]]", "[0]", "[0.0]", '["1"]',
    '{"": 0}', "[" * 200 + "]" * 200, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "0" + "}" * 100_000, "",
    "[1,]", "'a'",
)  # fmt: skip
"""JSON values, and texts that are none; without the label of the input files, as messages may show what is public."""

# Python refuses to convert longer numbers to text.
_DIGITS = 4000
_LENGTHS = (0, 1, 2, 7, 8, 15, 16, 17, 127, 128, 255, 256, 65535, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1,
            1 << 32, 1 << 40, (1 << 62) - 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 16, (1 << 64) - 1)  # fmt: skip


def varint(number: int, padding: int = 0) -> bytes:
    """Encodes a number as a protocol buffer varint.

    Args:
      number: The number, >= 0.
      padding: Bytes more than needed.

    Returns:
      The varint.
    """
    octets = bytearray()
    while number >= 0x80 or padding > 0:
        padding -= number < 0x80
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*octets, number])


def lengths() -> st.SearchStrategy[int]:
    """Lengths at the edges of types.

    Returns:
      Numbers from 0 to 2^64 - 1.
    """
    return st.sampled_from(_LENGTHS) | st.integers(0, 300)


@st.composite
def mutated_bytes(draw: st.DrawFn, seeds: Sequence[bytes], tokens: Sequence[bytes] = (), least: int = 0) -> bytes:
    """Mutates valid content.

    Args:
      draw: Of hypothesis.
      seeds: Valid contents.
      tokens: Bytes that mean something in the format; inserted, or written over others.
      least: Least number of mutations.

    Returns:
      Content after 0 to 5 mutations.
    """
    content = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(least, 5))):
        content = _mutated_once(draw, content, seeds, tokens)
    return content


def _mutated_once(draw: st.DrawFn, content: bytes, seeds: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    kind = draw(st.integers(0, 9))
    at = draw(st.integers(0, len(content)))
    if kind == 0:  # flips a bit
        return (
            content[:at]
            + bytes([octet ^ 1 << draw(st.integers(0, 7)) for octet in content[at : at + 1]])
            + content[at + 1 :]
        )
    if kind == 1:
        return content[:at]
    if kind == 2:  # leaves a part out
        return content[:at] + content[at + draw(st.integers(1, 40)) :]
    if kind == 3:  # repeats a part
        return content[: at + draw(st.integers(1, 40))] + content[at:]
    if kind == 4:
        other = draw(st.sampled_from(seeds))
        return content[:at] + other[draw(st.integers(0, len(other))) :]
    if kind == 5:
        length = draw(lengths())
        octets = draw(
            st.sampled_from([varint(length), length.to_bytes(8, "little"), (length & 0xFFFFFFFF).to_bytes(4, "little")])
        )
        return content[:at] + octets + content[at + len(octets) :]
    if kind == 6:
        return content[:at] + draw(st.binary(min_size=1, max_size=6)) + content[at:]
    if kind == 7:
        octets = draw(st.binary(min_size=1, max_size=3))
        return content[:at] + octets + content[at + len(octets) :]
    if tokens:
        token = draw(st.sampled_from(tokens))
        return content[:at] + token + content[at + (len(token) if kind == 8 else 0) :]
    return content


class _Token(str):
    """Text that stands in a JSON document as it is."""


class _Members(list):
    """JSON object as a list of pairs, in which a key may occur twice."""


@st.composite
def mutated_json(draw: st.DrawFn, seeds: Sequence[Any], texts: Sequence[bytes]) -> bytes:
    """Mutates a JSON document: its values, keys and structure, and seldom its bytes.

    Args:
      draw: Of hypothesis.
      seeds: Valid documents, parsed.
      texts: The same documents as text, for mutations of bytes.

    Returns:
      The text of a document.
    """
    if draw(st.integers(0, 9)) == 0:
        return draw(mutated_bytes(texts, [token.encode("utf-8", "surrogatepass") for token in JSON_TOKENS]))
    document = _as_members(copy.deepcopy(draw(st.sampled_from(seeds))))
    for _ in range(draw(st.integers(0, 3))):
        _mutate_node(draw, document)
    return _json_text(document).encode("utf-8", "surrogatepass")


def _as_members(value: Any) -> Any:
    if isinstance(value, dict):
        return _Members([[key, _as_members(each)] for key, each in value.items()])
    return [_as_members(each) for each in value] if isinstance(value, list) else value


def _mutate_node(draw: st.DrawFn, node: Any) -> None:
    """Changes one place below a container."""
    while node:
        place = draw(st.integers(0, len(node) - 1))
        child = node[place][1] if isinstance(node, _Members) else node[place]
        if not isinstance(child, list) or not child or draw(st.integers(0, 4)) == 0:
            break
        node = child
    else:
        return
    kind = draw(st.integers(0, 7))
    if kind == 0:
        del node[place]
    elif kind == 1:  # twice; in an object, with another value
        again = copy.deepcopy(node[place])
        node.insert(draw(st.integers(0, len(node))), [again[0], _token(draw)] if isinstance(node, _Members) else again)
    elif kind == 2 and isinstance(node, _Members):
        node[place][0] = draw(st.sampled_from(TEXTS))
    elif kind == 3:
        other = draw(st.integers(0, len(node) - 1))
        _swap(node, place, other)
    elif kind == 4 and isinstance(child, int | float) and not isinstance(child, bool):
        _put(node, place, _nearby(draw, child))
    elif kind == 4 and isinstance(child, str) and child.isdecimal() and len(child) < _DIGITS:
        _put(node, place, str(int(child) + draw(st.sampled_from([-1, 1, 1 << 32, -(1 << 40)]))))
    else:
        _put(node, place, _token(draw))


def _nearby(draw: st.DrawFn, number: float) -> float:
    return draw(st.sampled_from([number + 1, number - 1, -number, number * 2, number / 2, float(number), int(number)]))


def _token(draw: st.DrawFn) -> _Token:
    return _Token(draw(st.sampled_from(JSON_TOKENS)))


def _put(node: Any, place: int, value: Any) -> None:
    if isinstance(node, _Members):
        node[place][1] = value
    else:
        node[place] = value


def _swap(node: Any, one: int, other: int) -> None:
    if isinstance(node, _Members):
        node[one][1], node[other][1] = node[other][1], node[one][1]
    else:
        node[one], node[other] = node[other], node[one]


def _json_text(value: Any) -> str:
    if isinstance(value, _Token):
        return str(value)
    if isinstance(value, _Members):
        return "{" + ", ".join(f"{json.dumps(key)}: {_json_text(each)}" for key, each in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json_text, value)) + "]"
    return json.dumps(value)
