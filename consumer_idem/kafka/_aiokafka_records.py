"""Reads Kafka's record batches (format v2) by hand, where aiokafka's own reader gives up on everything behind one bad record.

aiokafka decodes a whole batch or raises: behind a flipped bit, an unknown codec or a header name that is not UTF-8 nothing
can be reached. Here what can be read is read, and what cannot is told with its offsets and bytes. No I/O.
Layout: https://kafka.apache.org/documentation/#recordbatch
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from struct import Struct
from typing import NamedTuple

from aiokafka import codec
from aiokafka.record.util import calc_crc32c

from consumer_idem.errors import CodecMissing, Unreadable
from consumer_idem.kafka._held import instant
from consumer_idem.message import Header, Message, Partition

_LOG_OVERHEAD = 12
_CRC_FROM = 21
_MAGIC = 2
_HEAD = Struct(">qiibIhiqqqhii")
_CODEC, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_LIBRARIES: Mapping[int, Callable[[], bool]] = {2: codec.has_snappy, 3: codec.has_lz4, 4: codec.has_zstd}
_DECODERS: Mapping[int, Callable[[bytes], bytes]] = {
    0: bytes,
    1: codec.gzip_decode,
    2: codec.snappy_decode,
    3: codec.lz4_decode,
    4: codec.zstd_decode,
}


class _Batch(NamedTuple):
    raw: bytes
    offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    first_time: int
    max_time: int
    producer_id: int
    size: int

    @property
    def next_offset(self) -> int:
        """Where the next batch starts; just one offset on where the header cannot be right."""
        return self.offset + (self.last_delta if self.magic == _MAGIC and self.last_delta >= 0 else 0) + 1


def read(partition: Partition, data: bytes, offset: int, limit: int, aborted: Collection[int] = ()) -> tuple[list[Message], int]:
    """Return up to `limit` messages of `data` from `offset` on, and where to go on; raise Unreadable if the first cannot be read.

    Raises CodecMissing if it could be read on a machine with the right library.
    Batches of the producer ids in `aborted` are skipped; so only the first batch of several transactions is sure to be
    judged rightly, and nothing behind it is read.
    """
    batch = next((batch for batch in _batches(data) if batch.next_offset > offset), None)
    if batch is None:
        return [], offset
    skipped = batch.attributes & _CONTROL or (batch.attributes & _TRANSACTIONAL and batch.producer_id in aborted)
    if skipped and _broken(batch) is None:
        return [], batch.next_offset
    messages: list[Message] = []
    try:
        for message in _messages(partition, batch, offset):
            messages.append(message)
            if len(messages) == limit:
                return messages, message.offset + 1
    except Unreadable as unreadable:
        if messages:
            return messages, unreadable.offset
        raise
    return messages, batch.next_offset


def _batches(data: bytes) -> Iterator[_Batch]:
    at = 0
    while len(data) - at >= _HEAD.size:
        offset, length, epoch, magic, crc, attributes, delta, first_time, max_time, producer_id, _, _, count = _HEAD.unpack_from(data, at)
        end = at + _LOG_OVERHEAD + length
        if length <= 0 or end > len(data):
            return
        yield _Batch(data[at:end], offset, epoch, magic, crc, attributes, delta, first_time, max_time, producer_id, count)
        at = end


def _broken(batch: _Batch) -> str | None:
    if batch.magic != _MAGIC:
        return f"record format {batch.magic} is not known"
    found = calc_crc32c(batch.raw[_CRC_FROM:])
    return None if found == batch.crc else f"checksum {found:08x} instead of {batch.crc:08x}"


def _messages(partition: Partition, batch: _Batch, offset: int) -> Iterator[Message]:
    start = max(offset, batch.offset)
    error = _broken(batch)
    if error is not None:
        raise Unreadable(partition, start, batch.next_offset, error=error, raw=batch.raw)
    number = batch.attributes & _CODEC
    if number in _LIBRARIES and not _LIBRARIES[number]():
        raise CodecMissing
    try:
        body = _Reader(_DECODERS[number](batch.raw[_HEAD.size :]))
        records = [body.record() for _ in range(batch.size)]
    # Decompressors raise what they like; whatever it is, nothing of this batch can be told apart.
    except Exception as fault:
        raise Unreadable(partition, start, batch.next_offset, error=repr(fault), raw=batch.raw) from fault
    for record in records:
        message_offset = batch.offset + record.offset_delta
        if message_offset >= offset:
            yield _message(partition, batch, record, message_offset)


def _message(partition: Partition, batch: _Batch, record: "_Record", offset: int) -> Message:
    time = batch.max_time if batch.attributes & _LOG_APPEND_TIME else batch.first_time + record.time_delta
    try:
        headers: tuple[Header, ...] = tuple((name.decode(), value) for name, value in record.headers)
    except UnicodeDecodeError as fault:
        raise Unreadable(partition, offset, offset + 1, error=f"a header name is not UTF-8: {fault}", raw=record.raw) from fault
    return Message(
        topic=partition.topic, partition=partition.number, offset=offset,
        key=record.key, value=record.value, headers=headers, time=instant(time),
        leader_epoch=batch.leader_epoch if batch.leader_epoch >= 0 else None,
    )  # fmt: skip


class _Record(NamedTuple):
    raw: bytes
    time_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


class _Reader:
    """Walks through the uncompressed records of one batch."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def record(self) -> _Record:
        length = self._varint()
        start = self._at
        self._at += 1  # attributes, unused
        time_delta, offset_delta = self._varint(), self._varint()
        key, value = self._bytes(), self._bytes()
        headers = [(self._bytes() or b"", self._bytes()) for _ in range(self._varint())]
        if self._at - start != length:
            raise ValueError(f"a record of {length} bytes holds {self._at - start}")
        return _Record(self._data[start : self._at], time_delta, offset_delta, key, value, headers)

    def _bytes(self) -> bytes | None:
        length = self._varint()
        if length < 0:
            return None
        taken = self._data[self._at : self._at + length]
        if len(taken) != length:
            raise ValueError("a record ends too early")
        self._at += length
        return taken

    def _varint(self) -> int:
        """Read a zigzag varint, as protobuf writes it."""
        shift = value = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)
            shift += 7
