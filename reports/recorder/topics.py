"""Observers of CreateTopics, DeleteTopics and DeleteRecords."""

from typing import Any

from highwater.reports.recorder.exchanges import Finish, Link, outcome_of, topic_id_of
from highwater.reports.recorder.recording import Operation


def create(link: Link, request: Any) -> Finish | None:
    if request.validate_only:
        return None
    recording = link.cluster.recording
    opened = {topic.name: recording.invoke("create_topic", topic=topic.name) for topic in request.topics}

    def finish(reply: Any | None) -> None:
        answers = {topic.name: topic for topic in reply.topics} if reply is not None else {}
        for topic, operation in opened.items():
            answer = answers.get(topic)
            if answer is None:
                recording.complete(operation, "info", topic=topic)
                continue
            topic_id = topic_id_of(answer.topic_id)
            recording.complete(operation, outcome_of([answer.error_code]), topic=topic, topic_id=topic_id)

    return finish


def delete(link: Link, request: Any) -> Finish:
    recording = link.cluster.recording
    requested = [
        *request.topic_names,
        *(link.cluster.topic(entry.name or "", entry.topic_id) for entry in request.topics),
    ]
    opened: dict[str, Operation] = {
        topic: recording.invoke("delete_topic", topic=topic) for topic in requested if topic is not None
    }

    def finish(reply: Any | None) -> None:
        answers = (
            {link.cluster.topic(entry.name or "", entry.topic_id): entry.error_code for entry in reply.responses}
            if reply is not None
            else {}
        )
        for topic, operation in opened.items():
            kind = outcome_of([answers[topic]], {3, 29, 73, 74}) if topic in answers else "info"
            recording.complete(operation, kind, topic=topic)

    return finish


def delete_records(link: Link, request: Any) -> Finish:
    recording = link.cluster.recording
    opened = {
        (topic.name, part.partition_index): recording.invoke(
            "delete_records", topic=topic.name, partition=part.partition_index,
            offset=part.offset if part.offset >= 0 else None,
        )
        for topic in request.topics
        for part in topic.partitions
    }  # fmt: skip

    def finish(reply: Any | None) -> None:
        results = {
            (topic.name, part.partition_index): part
            for topic in (reply.topics if reply is not None else ())
            for part in topic.partitions
        }
        for (topic, number), operation in opened.items():
            part = results.get((topic, number))
            kind = outcome_of([part.error_code]) if part is not None else "info"
            start = {"log_start_offset": part.low_watermark} if part is not None and kind == "ok" else {}
            recording.complete(operation, kind, topic=topic, partition=number, **start)

    return finish
