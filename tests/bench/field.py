"""Who runs, with how many messages, and what must be installed for it.

Each gets so many messages that it takes about five seconds for them, and the slowest fewer, so that a round does not take an hour: so
what a run costs once weighs alike. Every figure is per message. Ours run without their relay, since nobody else publishes, and are
allowed to let all their records wait.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

PROGRAMS = "tests.bench.contestants"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A program with its options. `needs` are modules, `needs_name` is one object of ours (module, name)."""

    name: str
    program: str
    messages: int
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: Sequence[str] = ()
    needs_name: tuple[str, str] | None = None

    @property
    def module(self) -> str:
        """What `python -m` runs."""
        return f"{PROGRAMS}.{self.program}"

    def absent(self) -> str | None:
        """Return why it cannot run here, None if it can."""
        missing = [module for module in self.needs if find_spec(module) is None]
        if missing:
            return f"{', '.join(missing)} is not installed: pip install 'consumer-idem[bench]'"
        if self.needs_name is not None:
            module, name = self.needs_name
            try:
                getattr(import_module(module), name)
            except (ImportError, AttributeError) as error:
                return str(error)
        return None


def ours(handler: str, client: str, messages: int, **options: Any) -> Contestant:
    """Ours with one kind of handler on one client."""
    subscriber = {"aiokafka": "AiokafkaSubscriber", "confluent": "ConfluentSubscriber"}[client]
    return Contestant(
        name=f"ours_{handler}_{client}",
        program="ours",
        messages=messages,
        options={"handler": handler, "client": client, "settings": {"outbox_depth_limit": 1_000_000}, **options},
        needs_name=(f"consumer_idem.kafka.{client}", subscriber),
    )


LOOP = Contestant(name="loop", program="loop", messages=5_000)
FLOOR = Contestant(name="set_floor", program="set_floor", messages=160_000, options={"tuned": True})
OURS = {
    (handler, client): ours(handler, client, messages)
    for client in ("aiokafka", "confluent")
    for handler, messages in (("await", 40_000), ("defer", 100_000), ("batch", 120_000))
}
PGBENCH = Contestant(name="pgbench_pipelined", program="pgbench", messages=60_000)

MAIN: Sequence[Contestant] = (
    LOOP,
    Contestant(name="loop_commit_each", program="loop", messages=3_000, options={"commit_each": True}),
    Contestant(name="pool", program="pool", messages=10_000),
    FLOOR,
    PGBENCH,
    Contestant(name="dbos", program="dbos", messages=1_000, needs=("dbos",)),
    Contestant(name="faststream", program="faststream", messages=2_000, needs=("faststream",)),
    Contestant(name="faststream_8_workers", program="faststream", messages=2_000, options={"workers": 8}, needs=("faststream",)),
    *OURS.values(),
)
