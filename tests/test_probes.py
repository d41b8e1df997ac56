"""What an orchestrator asks."""

import asyncio
import json

import pytest

from consumer_idem.errors import SettingRefused
from consumer_idem.probes import Probes


@pytest.fixture
async def probes():
    state = {"well": True}
    server = Probes(0, {"live": lambda: (state["well"], {"stuck": []})}, host="127.0.0.1")
    await server.start()
    yield server, state
    await server.stop()


async def ask(port, request):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), json.loads(body)


async def test_a_probe_says_yes_and_no(probes):
    server, state = probes
    assert await ask(server.port, b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n") == (200, {"stuck": []})
    state["well"] = False

    assert await ask(server.port, b"GET /live?x=1 HTTP/1.1\r\nHost: x\r\n\r\n") == (503, {"stuck": []})


async def test_an_unknown_path_names_the_known_ones(probes):
    assert await ask(probes[0].port, b"GET / HTTP/1.1\r\n\r\n") == (404, {"known": ["/live"]})


async def test_a_port_that_is_taken_is_refused_with_what_to_do(probes):
    second = Probes(probes[0].port, {}, host="127.0.0.1")

    with pytest.raises(SettingRefused, match=rf"port {probes[0].port}: Address already in use\. Give each process .* --health-port"):
        await second.start()
    await second.stop()


async def test_garbage_does_not_stop_it(probes):
    reader, writer = await asyncio.open_connection("127.0.0.1", probes[0].port)
    writer.write(b"\xff\r\n\r\n")
    await reader.read()
    writer.close()

    assert (await ask(probes[0].port, b"GET /live HTTP/1.1\r\n\r\n"))[0] == 200
