"""One term of a controller: the components that share a ControllerContext, and their queue of store events."""

from highwater.reference.controller.broker_changes import BrokerChanges
from highwater.reference.controller.cluster import read_states
from highwater.reference.controller.context import ControllerContext
from highwater.reference.controller.deletion import Deletions
from highwater.reference.controller.preferred import PreferredElections
from highwater.reference.controller.reassignment import Reassignments
from highwater.reference.controller.topic_changes import TopicChanges
from highwater.reference.procedures import Inbox

Event = tuple[str, str]


class Term:
    """The work of one controller epoch, from election to resignation."""

    def __init__(self, controller_context: ControllerContext, *, epoch_version: int) -> None:
        self.controller_context, self.epoch_version = controller_context, epoch_version
        self.reassignments = Reassignments(controller_context, self._on_reassignment_end)
        self.deletions = Deletions(controller_context, self.reassignments.is_moving)
        self.topics = TopicChanges(controller_context)
        self.brokers = BrokerChanges(controller_context, self.topics, self.deletions)
        self.elections = PreferredElections(controller_context, self.reassignments.is_moving)
        self._inbox: Inbox[Event] = Inbox()
        self._queued: set[Event] = set()

    def put(self, event: Event) -> None:
        """Queue an event, unless an equal one is already queued."""
        if event not in self._queued:
            self._queued.add(event)
            self._inbox.put(event)

    async def serve(self) -> None:
        """Handle the events of the store one at a time, until the term ends; changes of topics all at once."""
        while True:
            event = await self._inbox.take()
            self.controller_context.check_active()
            events = [event]
            if event[0] == "topic":
                events += self._inbox.take_while(lambda following: following[0] == "topic")
            self._queued.difference_update(events)
            await self._handle(event[0], *(name for _, name in events))

    async def _handle(self, kind: str, name: str, *more: str) -> None:
        if kind == "brokers":
            await self.brokers.refresh()
        elif kind == "leaders":
            await self.brokers.recover_leaders({})
        elif kind == "topic":
            await self.topics.refresh(name, *more)
        elif kind == "delete":
            self.deletions.start_or_resume(name)
        elif kind == "reassign":
            await self.reassignments.resume()
        elif kind == "disk":
            self.brokers.query_offline_replicas(int(name))
        elif kind == "preferred":
            await self.elections.run_requested()
        else:
            await self._state_changed(name)

    async def _state_changed(self, name: str) -> None:
        """Send UpdateMetadata to every broker after a leader changed its ISR in the store."""
        topic, _, partition = name.rpartition("/")
        key = (topic, int(partition))
        known, found = (
            self.controller_context.cluster.states.get(key),
            (await read_states(self.controller_context.store, [key])).get(key),
        )
        self.controller_context.check_active()
        if known is not None and found is not None and found.partition_epoch > known.partition_epoch:
            self.controller_context.record_state(key, found)
            self.controller_context.send_update_metadata([key], self.controller_context.cluster.brokers)

    def _on_reassignment_end(self, topic: str) -> None:
        self.deletions.on_reassignment_end(topic)
