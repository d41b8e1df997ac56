"""What a RetryPolicy takes, and how long it waits."""

from datetime import timedelta
from typing import Any

import pytest

from consumer_idem.consumer.handler import RetryPolicy
from consumer_idem.errors import DeclarationError

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(("retries", "longest"), [(0, 1), (1, 2), (4, 16), (5, 20), (1000, 20)])
def test_delays_double_up_to_the_limit_with_full_jitter(retries: int, longest: int) -> None:
    policy = RetryPolicy(first_delay=SECOND, max_delay=20 * SECOND)
    delays = [policy.delay(retries) / SECOND for _ in range(1000)]

    assert 0 <= min(delays) < 0.05 * longest
    assert 0.95 * longest < max(delays) <= longest


@pytest.mark.parametrize(
    "options",
    [
        {"retry_on": [ConnectionError]},
        {"retry_on": ConnectionError},
        {"quarantine_on": ("ValueError",)},
        {"release_on": (BaseException,)},
        {"attempts": 0},
        {"crashes": 0},
        {"releases": 0},
        {"first_delay": timedelta(0)},
        {"release_after": timedelta(seconds=-1)},
        {"deadline": timedelta(0)},
    ],
    ids=str,
)
def test_a_policy_that_cannot_work_is_refused_when_it_is_declared(options: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match=next(iter(options))):
        RetryPolicy(**options)
