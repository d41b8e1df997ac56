"""Damage in a topic's log: batches changed or cut off behind the broker's back, and one written by hand."""

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import NotLeaderForPartitionError, UnknownTopicOrPartitionError
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from consumer_idem.testing import KafkaBroker

HEAD = 61
_CRC_AT, _CRC_FROM, _ATTRIBUTES_AT = 17, 21, 22
# A broker tells of a new partition before it has made the log.
_NOT_YET = (UnknownTopicOrPartitionError.errno, NotLeaderForPartitionError.errno)
_PATIENCE = 30.0


def damage(broker: KafkaBroker, topic: str, offset: int, change: Callable[[bytearray], None]) -> tuple[int, int]:
    """Change the batch that holds `offset` in the log file of partition 0; return its first offset and the next batch's."""
    path = _log(broker, topic)
    at, base, batch = _find(path, offset)
    change(batch)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(batch)
    (last_delta,) = struct.unpack_from(">i", batch, 23)
    return base, base + last_delta + 1


def cut(broker: KafkaBroker, topic: str, offset: int) -> None:
    """Take the batch that begins at `offset`, and all behind it, from the log of partition 0, as an unclean election does.

    The broker must have been killed. When it starts again it leads under a higher epoch, and makes its indexes anew.
    """
    path = _log(broker, topic)
    at, base, _ = _find(path, offset)
    assert base == offset
    with path.open("r+b") as file:
        file.truncate(at)
    for index in (*path.parent.glob("*.index"), *path.parent.glob("*.timeindex"), *path.parent.glob("*.snapshot")):
        index.unlink()


def _log(broker: KafkaBroker, topic: str) -> Path:
    assert broker._folder is not None
    return broker._folder / "data" / f"{topic}-0" / "00000000000000000000.log"


def _find(path: Path, offset: int) -> tuple[int, int, bytearray]:
    """Return where in the file the batch lies that holds `offset`, its first offset, and the batch."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        base, length = struct.unpack_from(">qi", data, at)
        (last_delta,) = struct.unpack_from(">i", data, at + 23)
        if base <= offset <= base + last_delta:
            return at, base, bytearray(data[at : at + 12 + length])
        at += 12 + length
    raise AssertionError("no such offset in the log")


def flip(batch: bytearray) -> None:
    """Flip one bit of the records: the checksum is wrong."""
    batch[HEAD + 5] ^= 0x10


def unknown_codec(batch: bytearray) -> None:
    """Claim a compression that does not exist, with a right checksum."""
    batch[_ATTRIBUTES_AT] |= 0x07
    _sign(batch)


def not_compressed(batch: bytearray) -> None:
    """Claim that the records are compressed with gzip, which they are not, with a right checksum."""
    batch[_ATTRIBUTES_AT] |= 0x01
    _sign(batch)


def _sign(batch: bytearray) -> None:
    struct.pack_into(">I", batch, _CRC_AT, calc_crc32c(bytes(batch[_CRC_FROM:])))


async def produce_header_name(bootstrap: str, topic: str, count: int, at: int, name: bytes) -> None:
    """Write one batch of `count` numbers, of which the one at place `at` has a header with these bytes as its name."""
    placeholder = "x" * len(name)
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1_000_000)
    for number in range(count):
        headers = [(placeholder if number == at else "y" * len(name), b"value")]
        builder.append(number, None, b"k", str(number).encode(), headers)
    batch = bytearray(builder.build())
    start = batch.index(placeholder.encode())
    batch[start : start + len(name)] = name
    _sign(batch)
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        await client._wait_on_metadata(topic)
        async with asyncio.timeout(_PATIENCE):
            while (error := await _produce(client, topic, bytes(batch))) in _NOT_YET:
                await asyncio.sleep(0.02)
        assert error == 0
    finally:
        await client.close()


async def _produce(client: AIOKafkaClient, topic: str, batch: bytes) -> int:
    """Send one batch to partition 0; return the broker's error code."""
    request = ProduceRequest(transactional_id=None, required_acks=-1, timeout=5000, topics=[(topic, [(0, batch)])])
    answer = await client.send(client.get_random_node(), request)
    code: int = answer.topics[0][1][0][1]
    return code
