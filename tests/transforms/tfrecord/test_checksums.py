"""Incremental update of a checksum: equal to the checksum of the changed message."""

import google_crc32c
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from labeldp.transforms.tfrecord.framing import appended_checksums, changed_checksums, restarted_checksums

FOUR = st.binary(min_size=4, max_size=4)


def changed(messages: list[tuple[bytes, bytes, bytes, bytes]]) -> list[int]:
    """(ahead, four bytes before, four bytes after, behind) -> checksums after."""
    one = np.array([google_crc32c.value(ahead + before + behind) for ahead, before, _, behind in messages], np.uint32)
    before, after = (np.frombuffer(b"".join(message[i] for message in messages), "<u4") for i in (1, 2))
    return changed_checksums(one, before, after, np.array([len(message[3]) for message in messages])).tolist()


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=20), FOUR, FOUR, st.binary(max_size=300)), min_size=1, max_size=20))
def test_checksums_are_those_of_the_changed_messages(messages):
    expected = [google_crc32c.value(ahead + after + behind) for ahead, _, after, behind in messages]
    assert changed(messages) == expected


def test_far_from_the_end():
    """Tests distances around and above 65,536 bytes, whose powers have several digits."""
    content = np.random.default_rng(1).integers(0, 256, 1 << 20, np.uint8).tobytes()
    sizes = (65_530, 65_531, 65_532, 65_533, 65_536, 131_068, 131_072, 700_001, 1 << 20, 0)
    messages = [(b"ahead", b"\x00\x01\x02\x03", b"\xff\x80\x00\x7f", content[:size]) for size in sizes]
    assert changed(messages) == [google_crc32c.value(b"ahead\xff\x80\x00\x7f" + content[:size]) for size in sizes]


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=300), FOUR), min_size=1, max_size=20), st.binary(max_size=70))
def test_appended_checksums_are_those_of_the_longer_messages(messages, ending):
    before = np.array([google_crc32c.value(message) for message, _ in messages], np.uint32)
    last = np.frombuffer(b"".join(four for _, four in messages), "<u4")
    found = appended_checksums(before, google_crc32c.value(ending + bytes(4)), last, len(ending) + 4)
    assert found.tolist() == [google_crc32c.value(message + ending + four) for message, four in messages]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.binary(max_size=6), st.binary(max_size=6), st.binary(max_size=70_000)), min_size=1, max_size=10
    )
)
def test_restarted_checksums_are_those_of_the_messages_with_another_start(messages):
    whole, one, other = (
        np.array([google_crc32c.value(part) for part in parts], np.uint32)
        for parts in zip(*((before + rest, before, after) for before, after, rest in messages), strict=True)
    )
    behind = np.array([len(rest) for _, _, rest in messages])
    found = restarted_checksums(whole, one, other, behind)
    assert found.tolist() == [google_crc32c.value(after + rest) for _, after, rest in messages]


def test_no_message():
    nothing = np.empty(0, np.uint32)
    assert changed_checksums(nothing, nothing, nothing, np.empty(0, np.int64)).tolist() == []
