"""The fetcher's side of a fetch session with one leader (KIP-227): what the next request must name.

The first request of a session is full: it names all partitions. Later ones name the partitions whose request changed,
and the forgotten ones. A lost response leaves it unknown what the leader has applied, so the next request closes the
session and is full again. A leader without space for a session returns session id 0: every request stays full.

Apache Kafka: org.apache.kafka.clients.FetchSessionHandler.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Generic, NamedTuple, TypeVar

from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

Key = tuple[str, int]
Owner = TypeVar("Owner")
"""What fetches a partition: the replica of a follower; a consumer has None."""
NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
MAX_EPOCH: Final = (1 << 31) - 1
SESSION_ERRORS: Final = {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH}


class Sent(NamedTuple, Generic[Owner]):
    """The last request for one replica; a replica that was deleted and created again is another one."""

    partition: Owner
    request: FetchPartition


@dataclass(slots=True)
class FetchSessionHandler(Generic[Owner]):
    """`sent` is what the leader has in its session, or was asked for in the last full request."""

    sent: dict[Key, Sent[Owner]]
    session_id: int = NO_SESSION
    epoch: int = INITIAL_EPOCH

    @property
    def is_full(self) -> bool:
        """Return whether the next request must name all partitions."""
        return self.epoch == INITIAL_EPOCH

    def complete(
        self, body: FetchRequest, named: Mapping[Key, Sent[Owner]], forgotten: Iterable[Key] = ()
    ) -> FetchRequest:
        """Return a request with the session's id and epoch that names and forgets these partitions."""
        if self.is_full:
            self.sent = {}
        removed = [key for key in forgotten if self.sent.pop(key, None) is not None]
        self.sent.update(named)
        return replace(
            body,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=tuple(
                FetchTopic(topic=topic, partitions=tuple(named[key].request for key in keys))
                for topic, keys in _by_topic(named).items()
            ),
            forgotten_topics_data=tuple(
                ForgottenTopic(topic=topic, partitions=tuple(number for _, number in keys))
                for topic, keys in _by_topic(removed).items()
            ),
        )

    def handle_response(self, error: ErrorCode, session_id: int) -> bool:
        """Prepare the next request; return False if the response is an error and lists no partition."""
        if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:  # evicted, or the leader has restarted
            self.session_id = NO_SESSION
        if error is not ErrorCode.NONE:
            self.handle_error()
            return False
        if self.is_full:
            self.session_id = session_id
        elif session_id == NO_SESSION:  # the leader has ended the session, which had no partition left
            self.session_id, self.epoch = NO_SESSION, INITIAL_EPOCH
        if self.session_id != NO_SESSION:
            self.epoch = INITIAL_EPOCH + 1 if self.epoch == MAX_EPOCH else self.epoch + 1
        return True

    def handle_error(self) -> None:
        """Close the session with the next request, which is full: there was no usable response."""
        self.epoch = INITIAL_EPOCH


def _by_topic(keys: Iterable[Key]) -> dict[str, list[Key]]:
    found: dict[str, list[Key]] = {}
    for key in keys:
        found.setdefault(key[0], []).append(key)
    return found
