"""One term of office: the office, the parts that act in it, and the events that wait for them."""

from reference.controller.broker_changes import BrokerChanges
from reference.controller.cluster import read_states
from reference.controller.deletion import Deletions
from reference.controller.office import Office
from reference.controller.preferred import PreferredElections
from reference.controller.reassignment import Reassignments
from reference.controller.topic_changes import TopicChanges
from reference.procedures import Inbox

Event = tuple[str, str]


class Term:
    def __init__(self, office: Office, *, epoch_version: int) -> None:
        self.office, self.epoch_version = office, epoch_version
        self.reassignments = Reassignments(office, self._moved)
        self.deletions = Deletions(office, self.reassignments.moves)
        self.topics = TopicChanges(office)
        self.brokers = BrokerChanges(office, self.topics, self.deletions)
        self.elections = PreferredElections(office, self.reassignments.moves)
        self._inbox: Inbox[Event] = Inbox()
        self._queued: set[Event] = set()

    def put(self, event: Event) -> None:
        """Equal work that still waits is done once."""
        if event not in self._queued:
            self._queued.add(event)
            self._inbox.put(event)

    async def serve(self) -> None:
        """React to what the store tells, for as long as the term lasts."""
        while True:
            event = await self._inbox.take()
            self.office.check()
            self._queued.discard(event)
            await self._handle(*event)

    async def _handle(self, kind: str, name: str) -> None:
        if kind == "brokers":
            await self.brokers.look()
        elif kind == "topic":
            await self.topics.look(name)
        elif kind == "delete":
            self.deletions.want(name)
        elif kind == "reassign":
            await self.reassignments.resume()
        elif kind == "disk":
            self.brokers.look_at_disk(int(name))
        elif kind == "preferred":
            await self.elections.take_up()
        else:
            await self._state_changed(name)

    async def _state_changed(self, name: str) -> None:
        """A leader changed its ISR: everybody's metadata follows."""
        topic, _, partition = name.rpartition("/")
        key = (topic, int(partition))
        known, found = self.office.cluster.states.get(key), (await read_states(self.office.store, [key])).get(key)
        self.office.check()
        if known is not None and found is not None and found.partition_epoch > known.partition_epoch:
            self.office.learn(key, found)
            self.office.send_metadata([key], self.office.cluster.brokers)

    def _moved(self, topic: str) -> None:
        self.deletions.moved(topic)
