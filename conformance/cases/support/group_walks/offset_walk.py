"""Requests about the offsets of groups of one coordinator, each reply compared with the models of the groups."""

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from highwater.conformance.cases.support.polling import spread
from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.failures import Unsupported
from highwater.conformance.models.comparison import compare
from highwater.conformance.models.groups import DEAD, EMPTY, ClassicModel, GroupClient
from highwater.conformance.models.offsets import (
    IDS_SINCE,
    MANY_GROUPS,
    Commit,
    Existing,
    Key,
    commit_reply,
    commit_topics,
    delete_reply,
    delete_topics,
    fetch_reply,
    fetch_request,
)
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from highwater.reference.wire.messages.metadata import MetadataRequest

LARGEST: Final = (1 << 63) - 1
UNLIMITED: Final = 1 << 31
"""For a target whose limit of the metadata is unknown: no case then goes near it."""
ALL_TOPICS_SINCE: Final = 2
TOPIC_IDS_SINCE: Final = 10
UNKNOWN_ID: Final = b"\x01" * 16


class OffsetWalk:
    """Sends requests about offsets to one coordinator, and keeps the models of its groups up to date."""

    def __init__(self, cluster: Cluster, broker: Broker, *models: ClassicModel) -> None:
        """Create two topics, of three partitions and of one, beside a name without a topic."""
        self.cluster, self.broker, self.models = cluster, broker, models
        first, second = (cluster.create_topic(partitions=count).name for count in (3, 1))
        self.topics = (first, second, cluster.name("absent"))
        ids = self._ids(first, second) if broker.advertised[9][1] >= IDS_SINCE else {}
        limit = UNLIMITED
        with suppress(Unsupported):
            limit = cluster.setting("offset_metadata_max_bytes")
        self.existing = Existing({first: 3, second: 1}, {self.topics[2]: UNKNOWN_ID, **ids}, limit)
        self.keys = [(topic, number) for topic in self.topics for number in (0, 1, 2, 3, 1000)]
        self.fetch_versions = spread(broker, OffsetFetchRequest, 1)
        self.commit_versions = spread(broker, OffsetCommitRequest, 1)
        self.steps = 0

    def _ids(self, *names: str) -> dict[str, bytes]:
        found = self.broker.metadata(*names, version=self.broker.version_of(MetadataRequest, TOPIC_IDS_SINCE))
        return {str(topic.name): topic.topic_id for topic in found.topics}

    def commit(self, model: ClassicModel, commits: Sequence[Commit], client: GroupClient, version: int) -> None:
        """Commit, compare the reply, and compare what the group has stored."""
        request = OffsetCommitRequest(
            group_id=model.group, generation_id_or_member_epoch=client.generation, member_id=client.member_id,
            group_instance_id=client.instance, topics=commit_topics(commits, self.existing, version),
        )  # fmt: skip
        reply = self.broker.call(request, version)
        error = model.commit_error(client, version)
        what = f"step {self._next()}, OffsetCommit {version} of {client} in {model.state} {model.group}"
        compare(what, commit_reply(commits, error, self.existing, version), merged(reply), version)
        if not error:
            model.offsets.store(commits, self.existing, version)
            model.state = EMPTY if model.offsets.stored and model.state == DEAD else model.state
        self.check(model)

    def _next(self) -> int:
        self.steps += 1
        return self.steps

    def check(self, model: ClassicModel) -> None:
        """Compare all offsets of the group, or each by name, in the versions in turn."""
        version = self.fetch_versions[self.steps % len(self.fetch_versions)]
        keys = None if version >= ALL_TOPICS_SINCE and self.steps % 2 else self.keys
        self.fetch({model: keys}, version)

    def fetch(
        self, wanted: "Mapping[ClassicModel, Sequence[Key] | None]", version: int, *, stable: bool = False
    ) -> None:
        """Compare offsets of groups; `stable`: pending ones are refused, from version 7 on (KIP-447)."""
        fields = {"require_stable": True} if stable else {}
        request = fetch_request({each.group: keys for each, keys in wanted.items()}, self.existing, version, **fields)
        offsets = {each.group: (each.offsets, keys) for each, keys in wanted.items()}
        expected = fetch_reply(offsets, self.existing, version, stable=stable)
        compare(
            f"after step {self.steps}, OffsetFetch {version}", expected, self.broker.call(request, version), version
        )

    def check_all(self) -> None:
        """Compare the offsets of every group in every version, all of them and each by its name."""
        for version in self.fetch_versions:
            for keys in (None, self.keys, self.keys[:1], ()) if version >= ALL_TOPICS_SINCE else (self.keys,):
                if version >= MANY_GROUPS:
                    self.fetch(dict.fromkeys(self.models, keys), version)
                else:
                    for model in self.models:
                        self.fetch({model: keys}, version)

    def random_commits(self, chance: random.Random) -> list[Commit]:
        """Return commits of two to five partitions, existing and unknown ones, with values at their limits."""
        limit = self.existing.metadata_limit
        texts = ["", None, "a note", "\u00e9t\u00e9"]
        if limit < UNLIMITED:
            texts += ["x" * limit, "x" * (limit + 1)]
        keys = chance.sample(self.keys, 2) + chance.sample(self.keys[:3], chance.randint(0, 3))
        chance.shuffle(keys)
        return [
            Commit(
                *key,
                offset=chance.choice((0, 1, 7, 1 << 32, LARGEST)), leader_epoch=chance.choice((-1, 0, 5)),
                metadata=chance.choice(texts),
            )
            for key in dict.fromkeys(keys)
        ]  # fmt: skip

    def delete(self, model: ClassicModel, keys: Sequence[Key], subscribed: str = "") -> None:
        """Delete offsets; those of a topic to which a member is subscribed stay."""
        reply = self.broker.call(OffsetDeleteRequest(group_id=model.group, topics=delete_topics(keys)))
        refused = {key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC for key in keys if key[0] == subscribed}
        unknown = {key: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for key in keys if not self.existing.has(*key)}
        expected = dict.fromkeys(keys, 0) | refused | unknown
        compare(f"step {self._next()}, OffsetDelete of {model.group}", delete_reply(expected), reply, 0)
        model.offsets.delete(key for key, error in expected.items() if not error)
        self.check(model)


def merged(reply: OffsetCommitResponse) -> OffsetCommitResponse:
    """Return the reply with one entry for each topic and partition, since a topic may be answered as it was named."""
    topics: dict[tuple[str, bytes], OffsetCommitResponseTopic] = {}
    for topic in reply.topics:
        before = topics.get((topic.name, topic.topic_id))
        parts = (*before.partitions, *topic.partitions) if before else topic.partitions
        topics[topic.name, topic.topic_id] = replace(topic, partitions=tuple(dict.fromkeys(parts)))
    return replace(reply, topics=tuple(topics.values()))
