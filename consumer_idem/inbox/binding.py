"""What a source becomes with its model: all that reads its messages, and all that needs pydantic. Pure."""

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from consumer_idem.inbox.bound_fingerprint import BoundFingerprint
from consumer_idem.inbox.decode import Decoder
from consumer_idem.inbox.fingerprint import Fingerprint
from consumer_idem.inbox.identity import FindParts, FindTime, find_parts, find_time
from consumer_idem.inbox.locate import Place

P = TypeVar("P")


class Bound(NamedTuple, Generic[P]):
    """A source's parts, each made for its model."""

    decoder: Decoder[P]
    find_id: FindParts
    find_tenant: FindParts | None
    find_time: FindTime | None
    prints: Mapping[int, BoundFingerprint]
    """By version, the present one first."""


def bind(model: type[P], message_id: Place, tenant: Place | None, occurred_at: Place | None, fingerprint: Fingerprint) -> Bound[P]:
    """Return what reads messages into `model`; raise DeclarationError for what does not fit it."""
    return Bound(
        Decoder(model),
        find_parts(message_id, model, "message_id"),
        None if tenant is None else find_parts(tenant, model, "tenant"),
        None if occurred_at is None else find_time(occurred_at, message_id, model),
        {one.version: BoundFingerprint(one, model) for one in (fingerprint, *fingerprint.previous)},
    )
