"""What a machine offers is tried best first, and what does not start is left for the next."""

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from consumer_idem.testing import ServiceFailed
from consumer_idem.testing.services import choose, containers
from consumer_idem.testing.services.choose import ExternalKafka, ExternalPostgres
from consumer_idem.testing.services.containers import docker_answers
from consumer_idem.testing.services.ports import free_port


class Offered:
    """A server that may refuse to start."""

    def __init__(self, refusal: str | None = None) -> None:
        self.refusal = refusal
        self.closed = False

    def start(self) -> None:
        if self.refusal is not None:
            raise ConnectionError(self.refusal)

    def close(self) -> None:
        self.closed = True


def offer(*offered: Offered) -> list[Callable[[], Offered]]:
    return [lambda one=one: one for one in offered]


def test_the_first_that_starts_is_taken_and_what_did_not_is_closed() -> None:
    refusing, good, better_late = Offered("no image"), Offered(), Offered()

    with pytest.warns(UserWarning, match="no image"):
        assert choose.first_that_starts(offer(refusing, good, better_late)) is good
    assert (refusing.closed, good.closed) == (True, False)


def test_when_none_starts_every_refusal_is_told() -> None:
    with pytest.raises(ServiceFailed, match=r"(?s)no image.*no java"):
        choose.first_that_starts(offer(Offered("no image"), Offered("no java")))


def test_what_the_environment_names_is_taken_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSUMER_IDEM_TEST_KAFKA", "there:9092")
    monkeypatch.setenv("CONSUMER_IDEM_TEST_DSN", "postgresql://there/db")

    kafka, postgres = choose.open_kafka(), choose.open_postgres()

    assert isinstance(kafka, ExternalKafka)
    assert (kafka.bootstrap, kafka.is_real) == ("there:9092", True)
    assert isinstance(postgres, ExternalPostgres)


@pytest.mark.parametrize("host", ["unix:///nowhere/docker.sock", f"tcp://127.0.0.1:{free_port()}"])
def test_no_engine_is_noticed_at_once(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    started = time.monotonic()

    assert not docker_answers()
    # The client that is asked for TCP is imported first; by itself it would wait for a minute.
    assert time.monotonic() - started < 15


@pytest.mark.parametrize(("answer", "expected"), [(b"HTTP/1.0 200 OK\r\n\r\nOK", True), (b"HTTP/1.0 500 No\r\n\r\n", False)])
def test_an_engine_that_answers_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: bytes, expected: bool) -> None:
    path = str(tmp_path / "docker.sock")
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(path)
        engine.listen()
        answering = threading.Thread(target=_answer, args=(engine, answer))
        answering.start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")

        assert docker_answers() is expected
        answering.join()


def _answer(engine: socket.socket, answer: bytes) -> None:
    connection, _ = engine.accept()
    with connection:
        connection.recv(1000)
        connection.sendall(answer)


@pytest.mark.parametrize("kind", [containers.KafkaContainer, containers.PostgresContainer])
def test_a_container_that_was_not_started_says_so(kind: type[containers.ContainerServer]) -> None:
    with pytest.raises(ServiceFailed, match="not running"):
        kind().kill9()
