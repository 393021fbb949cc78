"""Observers of InitProducerId, AddPartitionsToTxn, TxnOffsetCommit and EndTxn."""

from typing import Any

from highwater.reports.recorder.exchanges import GROUP_REFUSED, Finish, Link, key_of, outcome_of, simple


class Transactions:
    """The open transactions of each producer id by epoch; the first request in a transaction begins it.

    A fenced instance may still send requests: they are not about the transaction of its successor.
    """

    def __init__(self) -> None:
        self._open: dict[int, dict[int, str]] = {}
        self._begun = 0

    def current(self, link: Link, producer_id: int, epoch: int, transactional_id: str | None) -> str:
        opened = self._open.setdefault(producer_id, {})
        txn = opened.get(epoch)
        if txn is None:
            self._begun += 1
            txn = opened[epoch] = f"{transactional_id or producer_id} {self._begun}"
            link.cluster.recording.append_info(
                "begin_txn", txn=txn, producer_id=producer_id, producer_epoch=epoch, value=transactional_id
            )
        return txn

    def init_producer(self, link: Link, request: Any) -> Finish:
        operation = link.cluster.recording.invoke("init_producer", value=request.transactional_id)

        def interpret(reply: Any) -> tuple[str, dict[str, Any]]:
            kind = outcome_of([reply.error_code])
            if kind != "ok":
                return kind, {"error": f"error {reply.error_code}"}
            self._open.pop(reply.producer_id, None)
            return kind, {"producer_id": reply.producer_id, "producer_epoch": reply.producer_epoch}

        return simple(link, operation, interpret)

    def add_partitions(self, link: Link, request: Any) -> None:
        """Begin the transactions named in the request; nothing else is recorded."""
        if request.v3_and_below_transactional_id:
            self.current(
                link, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch,
                request.v3_and_below_transactional_id,
            )  # fmt: skip
        for transaction in request.transactions:
            if not transaction.verify_only:
                self.current(link, transaction.producer_id, transaction.producer_epoch, transaction.transactional_id)

    def offsets(self, link: Link, request: Any) -> Finish | None:
        if not link.cluster.wants(request.group_id):
            return None
        txn = self.current(link, request.producer_id, request.producer_epoch, request.transactional_id)
        value = {
            key_of(topic.name, part.partition_index): max(part.committed_offset, -1)
            for topic in request.topics
            for part in topic.partitions
            if part.partition_index >= 0
        }
        operation = link.cluster.recording.invoke(
            "send_offsets", txn=txn, group=request.group_id, value=value,
            generation_id=None if request.group_id in link.cluster.by_epoch else request.generation_id,
            member_id=request.member_id or None, instance_id=request.group_instance_id,
            producer_id=request.producer_id, producer_epoch=request.producer_epoch,
        )  # fmt: skip

        def interpret(reply: Any) -> tuple[str, dict[str, Any]]:
            codes = [part.error_code for topic in reply.topics for part in topic.partitions]
            return outcome_of(codes, GROUP_REFUSED), {"txn": txn, "group": request.group_id}

        return simple(link, operation, interpret)

    def end(self, link: Link, request: Any) -> Finish | None:
        """Record EndTxn; only success is certain, because the client may retry after an error."""
        opened = self._open.get(request.producer_id, {})
        txn = opened.get(request.producer_epoch)
        if txn is None:
            return None
        operation = link.cluster.recording.invoke(
            "end_txn", txn=txn, value="commit" if request.committed else "abort",
            producer_id=request.producer_id, producer_epoch=request.producer_epoch,
        )  # fmt: skip

        def interpret(reply: Any) -> tuple[str, dict[str, Any]]:
            if not reply.error_code:
                opened.pop(request.producer_epoch, None)
                return "ok", {"txn": txn}
            return "info", {"txn": txn, "error": f"error {reply.error_code}"}

        return simple(link, operation, interpret)
