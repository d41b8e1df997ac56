"""How many of the next messages go into one transaction, after what happened so far. Pure."""

from dataclasses import dataclass

_FEW = 32
"""With so few messages a transaction already costs little per message."""
_UNBOUNDED = 1 << 20


@dataclass(slots=True)
class Plan:
    """First `in_doubt` messages run one by one, each marked before; then `together` may share transactions; then `alone` run
    one by one; then all is free again, but at first no more than `most` in one transaction: where one message fails, others do, and
    all that share its transaction are read and claimed in vain.
    """

    in_doubt: int = 0
    together: int = 0
    alone: int = 0
    most: int = _UNBOUNDED

    def size(self, left: int) -> int:
        """Return how many of the `left` next messages the next transaction takes."""
        if self.in_doubt:
            return min(1, left)
        if self.together:
            return min(self.together, left)
        return min(1 if self.alone else self.most, left)

    @property
    def lone(self) -> bool:
        """Whether the next transaction takes one message because it, or a neighbour, failed."""
        return self.in_doubt > 0 or (not self.together and self.alone > 0)

    def settled(self, count: int) -> None:
        """So many messages are settled."""
        if self.in_doubt:
            self.in_doubt -= min(count, self.in_doubt)
        elif self.together:
            self.together -= min(count, self.together)
        elif self.alone:
            self.alone -= min(count, self.alone)
        else:
            self.most = min(2 * self.most, _UNBOUNDED)

    def isolate(self, index: int) -> None:
        """The message at `index` failed after it had sent statements: keep those before it, then run it alone."""
        self.together, self.alone, self.most = index, 1, max(index, _FEW)

    def halve(self, count: int) -> None:
        """Something failed in a batch of `count` and nobody knows whose fault it was: look for it in the first half, in the end alone.

        Each half that succeeds is settled for good. So one message among 500 costs nine transactions that fail, and not 500 that succeed.
        """
        self.together, self.alone, self.most = count // 2, int(count == 1), max(count // 2, _FEW)

    def one_by_one(self, count: int) -> None:
        """The next `count` messages run alone, whatever they share with each other."""
        self.together, self.alone = 0, max(self.alone, count)
