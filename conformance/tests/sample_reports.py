"""Sample reports with real clauses and frames, and texts that a hostile target may send."""

import msgspec

from highwater.conformance.client.exchange import Event, ExchangeLog, ReportedEvent
from highwater.conformance.report import Report, Stamp, TargetReport
from highwater.conformance.running.verdicts import CaseResult, CaseVerdict, count_verdicts, known_expectations
from highwater.reference.wire.framing import encode_request, encode_response
from highwater.reference.wire.messages.topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from highwater.reference.wire.registry import api_of
from highwater.spec.clauses import load_clauses

HOSTILE = "<script>alert('x')</script> | [a](http://evil) \x00\x1b[31m\ufffe"
STAMP = Stamp(
    suite="highwater 0", schema="Apache Kafka 0", started="2026-01-02T03:04:05+00:00", options={"level": "must"}
)


def exchange(says: str = "no") -> list[ReportedEvent]:
    """Return the exchange of a CreateTopics whose reply has that error message."""
    log = ExchangeLog()
    refused = CreatableTopicResult(name="t", error_code=17, error_message=says)
    reply = encode_response(CreateTopicsResponse(topics=(refused,)), 5, 1)
    log.add(Event("127.0.0.1:9092", "<- request", encode_request(CreateTopicsRequest(), 5, 1, "highwater")))
    log.add(Event("127.0.0.1:9092", "-> reply", reply, api_of(CreateTopicsRequest), 5))
    log.add(Event("127.0.0.1:9092", "-> disconnected"))
    return log.to_report()


def passed(case: str) -> CaseResult:
    return result(case, CaseVerdict.PASS)


def failed(case: str, says: str = "error code: expected 2, actual 0") -> CaseResult:
    found = result(case, CaseVerdict.FAIL, says)
    return msgspec.structs.replace(found, expected="2", actual="0", exchange=exchange(says))


def result(case: str, verdict: CaseVerdict, says: str = "") -> CaseResult:
    clause = case.partition("[")[0]
    level = load_clauses()[clause].level if clause in load_clauses() else "MUST"
    return CaseResult(case=case, clause=clause, level=level, verdict=verdict, message=says, seconds=0.25)


def target(name: str, *cases: CaseResult) -> TargetReport:
    return TargetReport(
        target=name,
        version="1.2",
        verdicts=count_verdicts(cases),
        cases=list(cases),
        features={"metadata.version": [1, 27]},
        expectations=known_expectations(name),
    )


def report(*targets: TargetReport) -> Report:
    return Report(targets=list(targets), run=STAMP)
