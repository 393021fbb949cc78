"""The fetch sessions that pass through a proxy (KIP-227, KIP-932): their partitions, which later requests do not name.

The first request of a session, of epoch 0, names all partitions. Each later one names those that are added, changed or
forgotten, so a filter on a topic has to know the rest. A broker gives the session of Fetch an id; that of ShareFetch
belongs to a member of a group. A session whose first request did not pass is unknown.
"""

from dataclasses import replace
from typing import Any, Final

from highwater.fuzz.proxy.items import partition_field
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.share_groups import ShareFetchRequest

OPENS: Final = 0
KNOWN: Final = 10_000
"""The number of sessions that are remembered; a broker of Apache Kafka has a thousand."""
EPOCHS: Final = {FetchRequest: "session_epoch", ShareFetchRequest: "share_session_epoch"}
Key = tuple[Any, ...]
Partitions = dict[Any, dict[int, Any]]
"""The entries of the partitions of a session by the entry of their topic, which is without partitions."""


def epoch_of(request: Any) -> int | None:
    """Return the session epoch of a request to fetch; None if it is another request."""
    name = EPOCHS.get(type(request))
    return getattr(request, name) if name else None


def is_incremental(request: Any) -> bool:
    """Return whether a request continues a session, so that it need not name what it fetches."""
    return (epoch_of(request) or 0) > OPENS


class FetchSessions:
    """The partitions of each session, by its broker."""

    def __init__(self) -> None:
        """Begin without sessions."""
        self._known: dict[Key, Partitions] = {}

    def open(self, broker: object, request: Any, response: Any) -> None:
        """Remember the partitions of a session that this response has opened, if it has."""
        session_id = getattr(response, "session_id", None)
        if epoch_of(request) != OPENS or response.error_code or session_id == 0:  # 0: the broker has no space for one
            return
        if len(self._known) >= KNOWN:
            self._known.pop(next(iter(self._known)))
        partitions = self._known[_key(broker, request, session_id)] = {}
        _update(partitions, request)

    def whole(self, broker: object, request: Any) -> Any:
        """Return a request as if it were the first of its session, with all partitions; itself if that is not known."""
        if not is_incremental(request):
            return request
        partitions = self._known.get(_key(broker, request, getattr(request, "session_id", None)))
        if partitions is None:
            return request
        _update(partitions, request)
        topics = tuple(replace(topic, partitions=tuple(entries.values())) for topic, entries in partitions.items())
        return replace(request, topics=topics, **{EPOCHS[type(request)]: OPENS})


def _key(broker: object, request: Any, session_id: int | None) -> Key:
    return (broker, session_id) if session_id is not None else (broker, request.group_id, request.member_id)


def _update(partitions: Partitions, request: Any) -> None:
    """Add the partitions that a request names, and remove those that it forgets."""
    for topic in request.topics:
        entries = partitions.setdefault(replace(topic, partitions=()), {})
        entries.update((getattr(entry, str(partition_field(type(entry)))), entry) for entry in topic.partitions)
    for forgotten in request.forgotten_topics_data:
        for topic in (each for each in partitions if _identity(each) == _identity(forgotten)):
            for number in forgotten.partitions:
                partitions[topic].pop(number, None)


def _identity(topic: Any) -> tuple[bytes, str]:
    return topic.topic_id, getattr(topic, "topic", "")
