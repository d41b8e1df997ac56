"""The processes of the demo: two workers and a relay, each started as a user starts them."""

import signal

from consumer_idem.demo.names import VARIABLE
from consumer_idem.demo.services import Services
from consumer_idem.errors import ConsumerIdemError
from consumer_idem.testing.supervisor import Child, Supervisor

_STOP_WITHIN = 30.0
_SESSION, _SHORT_SESSION = 6, 3
"""Seconds until a killed worker's partitions are given to the other. Apache Kafka takes nothing below the first."""


class DemoFailed(ConsumerIdemError):
    """A process of the demo ended by itself, or nothing moved any more."""


class Crew:
    """Starts, kills and stops them; whoever ends without being asked makes `check` raise DemoFailed."""

    def __init__(self, supervisor: Supervisor, services: Services, app: str, batch_size: int) -> None:
        self._supervisor = supervisor
        self._services = services
        self._app = app
        self._batch_size = batch_size
        self._running: list[Child] = []

    async def start_worker(self, name: str) -> Child:
        """Start a worker that consumes and does not publish."""
        flags = ["--client", "aiokafka", "--batch-size", str(self._batch_size), "--no-relay"]
        return await self._start(name, "run", self._app, *flags)

    async def start_relay(self) -> Child:
        """Start what publishes the outbox. The small broker serves no idempotent producer but confluent-kafka's."""
        return await self._start("relay", "relay", "--client", "confluent")

    async def kill(self, child: Child) -> None:
        """Kill with SIGKILL: no clean-up, no goodbye."""
        self._running.remove(child)
        await child.kill9()

    def check(self) -> None:
        """Raise DemoFailed if somebody is gone."""
        for child in self._running:
            if child.status is not None:
                raise DemoFailed(f"The {child.name} ended by itself with status {child.status}:\n{child.tail()}")

    def tails(self) -> str:
        """Return the last lines of everybody's output."""
        return "\n".join(f"{child.name}:\n{child.tail()}" for child in self._running)

    async def stop(self) -> None:
        """Ask all to end as an operator does, and wait for it."""
        for child in self._running:
            child.terminate()
        while self._running:
            child = self._running.pop()
            status = await child.wait(timeout=_STOP_WITHIN)
            # One that was started a moment ago may not listen to signals yet: then the signal itself ends it.
            if status not in (0, -signal.SIGTERM):
                raise DemoFailed(f"The {child.name} was asked to end and did so with status {status}:\n{child.tail()}")

    async def _start(self, name: str, *arguments: str) -> Child:
        services = self._services
        command = ["-m", "consumer_idem.cli", *arguments, "--kafka", services.kafka, "--schema", services.names.library]
        # The DSN may hold a password, which everybody could read on a command line.
        environment = {"CONSUMER_IDEM_DATABASE": services.dsn, VARIABLE: services.names.run, **_times(services.small_broker)}
        child = await self._supervisor.start(*command, "--log-level", "warning", env=environment, name=name)
        self._running.append(child)
        return child


def _times(small_broker: bool) -> dict[str, str]:
    session = _SHORT_SESSION if small_broker else _SESSION
    shorter = dict.fromkeys(("IDLE_IN_TRANSACTION_TIMEOUT", "STATEMENT_TIMEOUT", "DRAIN_TIMEOUT"), session - 1)
    times = {"SESSION_TIMEOUT": session, **shorter, "LOCK_TIMEOUT": session - 2}
    return {f"CONSUMER_IDEM_{name}": str(seconds) for name, seconds in times.items()}
