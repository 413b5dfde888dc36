"""Parts of an object that is joined from others: all bytes in order, within the limits of S3, and few of them sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("boto3", reason="the extra aws is not installed")

from labeldp.transforms.stores.s3_store import LEAST_PART, Part, Range, joined_parts

MIB = 1 << 20
# S3's limits.
MOST_PARTS, MOST_BYTES = 10_000, 5 << 30
SIZES = st.one_of(st.integers(0, 3), st.integers(0, 12 * MIB), st.integers(0, 6 << 30))


def named(*sizes: int) -> list[tuple[str, int]]:
    return [(f"s3://b/{place}", size) for place, size in enumerate(sizes)]


def size_of(part: Part) -> int:
    return sum(each.stop - each.start for each in part.ranges)


def check(sources: list[tuple[str, int]]) -> list[Part]:
    parts = joined_parts(sources)
    found = [each for part in parts for each in part.ranges]
    assert all(each.start < each.stop for each in found)
    # Every byte once and in order: ranges of a source follow each other from its start to its end.
    covered: list[tuple[str, int]] = []
    for each in found:
        if covered and covered[-1][0] == each.path:
            assert covered.pop()[1] == each.start
        else:
            assert each.start == 0
        covered.append((each.path, each.stop))
    assert covered == [source for source in sources if source[1]]
    assert len(parts) <= MOST_PARTS
    assert all(size_of(part) >= LEAST_PART for part in parts[:-1])
    assert all(size_of(part) <= MOST_BYTES for part in parts)
    assert all(len(part.ranges) == 1 for part in parts if part.copied)
    return parts


@given(st.lists(SIZES, max_size=12))
def test_all_bytes_are_in_order_and_within_the_limits(sizes: list[int]) -> None:
    parts = check(named(*sizes))
    total = sum(sizes)
    sent = sum(size_of(part) for part in parts if not part.copied)
    # A part of each short source, at most, and of what follows it.
    assert sent <= len([size for size in sizes if size > 0]) * max(LEAST_PART, total // 4_000)


def test_an_object_of_the_largest_size_has_few_enough_parts() -> None:
    terabytes = 5 << 40
    for sources in (named(*[terabytes // 1_024] * 1_024), named(*[terabytes // 200_000] * 200_000), named(terabytes)):
        check(sources)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((), []),
        ((0, 0), []),
        ((MIB - 1,), [Part((Range("s3://b/0", 0, MIB - 1),), copied=False)]),
        ((MIB,), [Part((Range("s3://b/0", 0, MIB),), copied=True)]),
        (
            (600 * MIB,),
            [
                Part((Range("s3://b/0", 0, 300 * MIB),), copied=True),
                Part((Range("s3://b/0", 300 * MIB, 600 * MIB),), copied=True),
            ],
        ),
        (
            (7 * MIB, 0, 3),
            [Part((Range("s3://b/0", 0, 7 * MIB),), copied=True), Part((Range("s3://b/2", 0, 3),), copied=True)],
        ),
        (
            (2 * MIB, 9 * MIB, 1),
            [
                Part((Range("s3://b/0", 0, 2 * MIB), Range("s3://b/1", 0, 3 * MIB)), copied=False),
                Part((Range("s3://b/1", 3 * MIB, 9 * MIB),), copied=True),
                Part((Range("s3://b/2", 0, 1),), copied=True),
            ],
        ),
    ],
)
def test_which_bytes_are_copied_and_which_are_sent(sizes: tuple[int, ...], expected: list[Part]) -> None:
    assert joined_parts(named(*sizes)) == expected


def test_the_header_names_the_last_byte() -> None:
    assert Range("s3://b/x", 0, 1).header == "bytes=0-0"
