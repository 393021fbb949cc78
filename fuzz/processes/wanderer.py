"""A consumer that does not stay what it is: assigned, then subscribed, then gone without a word, then another."""

import itertools
import threading
from typing import Any

from fuzz.processes.load import GROUP
from fuzz.processes.readers import ConfluentConsumer, key_of

STAYS_S = 2.0


class Wanderer(ConfluentConsumer):
    """Every stay is a client of its own. A crash is one that is dropped unclosed: its group waits for it in vain."""

    def run(self, stop: threading.Event) -> None:
        for turn in itertools.count():
            if stop.is_set():
                return
            self._group = GROUP if turn % 2 else None
            consumer = self._make()
            self._begin(consumer)
            self._stay(consumer, stop)
            if turn % 4 == 3:
                self._recorder.record(self._process, "info", "crash", client=self.client)
            else:
                consumer.close()
            keys = [key_of(self._topic, partition) for partition in range(self._partitions)]
            self._recorder.record(self._process, "info", "revoke", value=keys, client=self.client)

    def _stay(self, consumer: Any, stop: threading.Event) -> None:
        over = threading.Event()
        timer = threading.Timer(STAYS_S, over.set)
        timer.start()
        while not over.is_set() and not stop.is_set():
            self._poll(consumer)
        timer.cancel()
