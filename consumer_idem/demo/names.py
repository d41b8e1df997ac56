"""What one run of the demo calls its things. On servers of somebody else's each run has names of its own, and removes them."""

import os
from dataclasses import dataclass
from typing import Self

VARIABLE = "CONSUMER_IDEM_DEMO_RUN"
"""How the demo tells its workers which run they belong to."""

PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Names:
    """`run` is empty, or short and of lower-case letters and digits."""

    run: str = ""

    @classmethod
    def of_this_process(cls) -> Self:
        """Return the names that the demo has chosen for its workers."""
        return cls(os.environ.get(VARIABLE, ""))

    @property
    def requested(self) -> str:
        """The topic with the payment requests."""
        return f"payments.requested{self._topic_end}"

    @property
    def applied(self) -> str:
        """The topic with what was applied."""
        return f"payments.applied{self._topic_end}"

    @property
    def group(self) -> str:
        """The consumer group."""
        return f"payments{self._topic_end}"

    @property
    def shop(self) -> str:
        """The PostgreSQL schema of the shop's own tables."""
        return f"shop_{self.run}" if self.run else "shop"

    @property
    def library(self) -> str:
        """The PostgreSQL schema of the library's tables."""
        return f"idem_{self.run}" if self.run else "idem"

    @property
    def _topic_end(self) -> str:
        return f".{self.run}" if self.run else ""
