"""Fields of InitProducerId, AddOffsetsToTxn, EndTxn, and of the lists and descriptions of transactions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from highwater.conformance.broker import expect
from highwater.conformance.cases.fields.partitions import INT16_MIN, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from highwater.conformance.cases.fields.producers import (
    NO_MAPPING,
    OTHER_ID,
    WRONG_EPOCHS,
    WRONG_IDS,
    World,
    expect_state,
    expect_state_if_known,
    fenced,
    identity,
    read_error,
    send_call,
)
from highwater.conformance.cases.fields.table import Call, check_all, no_items, shared
from highwater.conformance.cases.support.transactions import (
    COMMIT,
    TIMEOUT_MS,
    TRANSACTION_KEY,
    Transactional,
    describe_transaction,
)
from highwater.conformance.clause import clause
from highwater.conformance.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest
from highwater.reference.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)

INT16_MAX: Final = 2**15 - 1
LONG_NAME: Final = "x" * 1000
INVALID, NO_TIMEOUT, NOT_FOUND, NO_STATE = (
    ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_TRANSACTION_TIMEOUT, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorCode.INVALID_TXN_STATE,
)  # fmt: skip
EMPTY, ONGOING = "Empty", "Ongoing"


@pytest.fixture
def world(cluster: Cluster) -> World:
    return World(cluster)


# -- InitProducerId ----------------------------------------------------------------------------------------


def init(**changed: Any) -> Callable[[World], Any]:
    """Return a builder of a request with a new transactional id."""

    def build(world: World) -> InitProducerIdRequest:
        usual = {"transactional_id": world.cluster.name("x"), "transaction_timeout_ms": _timeout_ms(world)}
        return InitProducerIdRequest(**{**usual, **changed})

    return build


def init_again(producer_id: Callable[[int], int], epoch: Callable[[int], int]) -> Callable[[World], Any]:
    """Return a builder of a request with a known transactional id, and with changed producer id and epoch."""

    def build(world: World) -> InitProducerIdRequest:
        producer = world.producer()
        return InitProducerIdRequest(
            transactional_id=producer.id, transaction_timeout_ms=producer.timeout_ms,
            producer_id=producer_id(producer.producer_id), producer_epoch=epoch(producer.epoch),
        )  # fmt: skip

    return build


def _timeout_ms(world: World) -> int:
    return world.cluster.within(TIMEOUT_MS, at_most="transaction_max_timeout_ms")


def always(value: int) -> Callable[[int], int]:
    return lambda known: value


def same(known: int) -> int:
    return known


def read_init(reply: Any) -> tuple[int, int | None]:
    """Return the error code, and the epoch if there is no error."""
    return reply.error_code, None if reply.error_code else reply.producer_epoch


def has_timeout(world: World, request: Any) -> None:
    found = describe_transaction(Transactional(world.cluster, request.transactional_id))
    expect("timeout of the transactional id", request.transaction_timeout_ms, found.transaction_timeout_ms)


def is_unchanged(world: World, request: Any) -> None:
    expect_state(world, request.transactional_id, EMPTY, 0)


GIVEN: Final = (0, 0)
KNOWS_ID: Final = (3, None)
"""The versions in which a producer sends the id and epoch that it has."""
INITIALIZED: Final = [
    Call("transactional_id with a blank", init(transactional_id=" "), 0, read_error),
    Call("transactional_id long", init(transactional_id=LONG_NAME), 0, read_error),
    Call("transactional_id null, timeout 0", init(transactional_id=None, transaction_timeout_ms=0), GIVEN, read_init),
    Call("transactional_id null, timeout -1", init(transactional_id=None, transaction_timeout_ms=-1), GIVEN, read_init),
    Call(
        "transactional_id null, timeout largest",
        init(transactional_id=None, transaction_timeout_ms=INT32_MAX),
        GIVEN,
        read_init,
    ),
    Call(
        "transactional_id null, with producer id and epoch",
        init(transactional_id=None, producer_id=7, producer_epoch=3),
        GIVEN,
        read_init,
        KNOWS_ID,
    ),
    Call(
        "transactional_id null, producer_id without epoch",
        init(transactional_id=None, producer_id=7),
        (INVALID, None),
        read_init,
        KNOWS_ID,
    ),
    Call("transactional_id empty", init(transactional_id=""), (INVALID, None), read_init),
    Call("timeout 1", init(transaction_timeout_ms=1), GIVEN, read_init, stored=has_timeout),
    Call("timeout smallest", init(transaction_timeout_ms=INT32_MIN), (NO_TIMEOUT, None), read_init),
    Call("producer_id without epoch", init(producer_id=7), (INVALID, None), read_init, KNOWS_ID),
    Call("producer_epoch without id", init(producer_epoch=0), (INVALID, None), read_init, KNOWS_ID),
    Call("new, with producer id and epoch", init(producer_id=7, producer_epoch=3), GIVEN, read_init, KNOWS_ID),
    Call("new, with largest id", init(producer_id=INT64_MAX, producer_epoch=INT16_MAX), GIVEN, read_init, KNOWS_ID),
    *(
        Call(name, init_again(*changes), (INVALID, None), read_init, KNOWS_ID, stored=is_unchanged)
        for name, changes in [
            ("producer_epoch -1 of a known id", (same, always(-1))),
            ("producer_id -1 with a known epoch", (always(-1), same)),
        ]
    ),
    Call("both -1", init_again(always(-1), always(-1)), (0, 1), read_init, KNOWS_ID),
    Call("both known", init_again(same, same), (0, 1), read_init, KNOWS_ID),
    *(
        each
        for name, producer_id, epoch in [
            ("producer_epoch one too large", same, increment),
            ("producer_epoch largest", same, always(INT16_MAX)),
            ("producer_epoch -2", same, always(-2)),
            ("producer_epoch smallest", same, always(INT16_MIN)),
            ("producer_id of no producer", always(OTHER_ID), same),
            ("producer_id one too large", increment, same),
            ("producer_id -2", always(-2), same),
            ("producer_id smallest", always(INT64_MIN), same),
        ]
        for each in fenced(
            Call(name, init_again(producer_id, epoch), 0, read_init, KNOWS_ID, stored=is_unchanged),
            4,
            lambda code: (code, None),
        )
    ),
]  # fmt: skip


@clause("FLD-8", "InitProducerId")
@defect(Reply(InitProducerIdRequest, "error_code", increment))
@pytest.mark.parametrize("rows", shared(*INITIALIZED))
def test_fields_of_a_request_for_a_producer_id(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(InitProducerIdRequest, send_call), rows, world, world.broker)


# -- AddOffsetsToTxn, EndTxn -------------------------------------------------------------------------------


def keeps_transaction(world: World, request: Any) -> None:
    """Check that the producer of the request, if it exists, still has the transaction with which it was created."""
    expect_state_if_known(world, request.transactional_id, ONGOING)


def without_transaction(world: World) -> Transactional:
    return world.producer()


def with_transaction(world: World) -> Transactional:
    return world.open_producer()


def committed(world: World) -> Transactional:
    """Return a producer whose transaction was committed in a version that keeps the epoch."""
    producer = world.open_producer()
    producer.end(commit=COMMIT)
    return producer


def add_offsets(**changed: Any) -> Callable[[World], Any]:
    return lambda world: AddOffsetsToTxnRequest(**identity(world.producer(), changed, group_id="g"))


def end(producer: Callable[[World], Transactional] = with_transaction, **changed: Any) -> Callable[[World], Any]:
    return lambda world: EndTxnRequest(**identity(producer(world), changed, committed=True))


def begins(world: World, request: Any) -> None:
    expect_state(world, request.transactional_id, ONGOING, 0)


def begins_none(world: World, request: Any) -> None:
    """Check that the producer of the request, if it exists, has no transaction."""
    expect_state_if_known(world, request.transactional_id, EMPTY)


ADDED: Final = [
    Call("group_id empty", add_offsets(group_id=""), 0, read_error, stored=begins),
    Call("group_id with a blank", add_offsets(group_id=" "), 0, read_error, stored=begins),
    Call("group_id long", add_offsets(group_id=LONG_NAME), 0, read_error, stored=begins),
    *(Call(name, add_offsets(**changed), error, read_error, stored=begins_none) for name, changed, error in WRONG_IDS),
    *(
        row
        for name, epoch in WRONG_EPOCHS
        for row in fenced(Call(name, add_offsets(producer_epoch=epoch), 0, read_error, stored=begins_none), 2)
    ),
]
ENDED: Final = [
    *(Call(name, end(**changed), error, read_error, stored=keeps_transaction) for name, changed, error in WRONG_IDS),
    *(
        row
        for name, epoch in WRONG_EPOCHS
        for row in fenced(Call(name, end(producer_epoch=epoch), 0, read_error, stored=keeps_transaction), 2)
    ),
    Call("committed twice", end(committed), 0, read_error, (0, 4)),
    Call("aborted after the commit", end(committed, committed=False), NO_STATE, read_error, (0, 4)),
    *fenced(Call("wrong producer_epoch after the commit", end(committed, producer_epoch=7), 0, read_error, (0, 4)), 2),
    Call("producer_id of no producer after the commit", end(committed, producer_id=OTHER_ID), NO_MAPPING, read_error),
    *fenced(Call("wrong producer_epoch without one", end(without_transaction, producer_epoch=7), 0, read_error), 2),
]


@clause("FLD-8", "AddOffsetsToTxn")
@defect(Reply(AddOffsetsToTxnRequest, "error_code", increment))
@pytest.mark.parametrize("rows", shared(*ADDED))
def test_fields_of_an_addition_of_offsets(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(AddOffsetsToTxnRequest, send_call), rows, world, world.broker)


@clause("FLD-8", "EndTxn")
@defect(Reply(EndTxnRequest, "error_code", increment))
@pytest.mark.parametrize("rows", shared(*ENDED))
def test_fields_of_the_end_of_a_transaction(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(EndTxnRequest, send_call), rows, world, world.broker)


# -- ListTransactions --------------------------------------------------------------------------------------


@dataclass
class ListWorld(World):
    """Also a producer with an open transaction and one without, whose ids have a common beginning."""

    opened: Transactional = field(init=False)
    empty: Transactional = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.opened, self.empty = self.open_producer(), self.producer()

    def listed(self, request: Any, version: int) -> tuple[int, str, tuple[str, ...]]:
        """Return error code, the listed transactions of this world (o for open, e for empty), and unknown states."""
        error, found, unknown = 0, "", set[str]()
        for address in self.cluster.target.addresses.values():
            with self.cluster.connect(address) as broker:
                reply = self.patiently(broker, request, version)
            ids = [each.transactional_id for each in reply.transaction_states]
            found += "o" * ids.count(self.opened.id) + "e" * ids.count(self.empty.id)
            error, unknown = error or reply.error_code, unknown | set(reply.unknown_state_filters)
        return error, "".join(sorted(found)), tuple(sorted(unknown))


def listing(*states: str, **fields: Any) -> Callable[[ListWorld], Any]:
    """Return a builder of a request; a function among the fields returns a value for a world."""
    return lambda world: ListTransactionsRequest(
        state_filters=states, **{key: each(world) if callable(each) else each for key, each in fields.items()}
    )


def ids(*numbers: int | None) -> Callable[[ListWorld], Any]:
    """Return the producer id of the open transaction for None, and other numbers as they are."""
    return lambda world: tuple(world.opened.producer_id if each is None else each for each in numbers)


def pattern(build: Callable[[str, str], str]) -> Callable[[ListWorld], Any]:
    """Return a pattern built from the ids of the open and the empty transaction."""
    return lambda world: build(world.opened.id, world.empty.id)


BOTH: Final = (0, "eo", ())
FILTERED: Final = [
    Call("state twice", listing(ONGOING, ONGOING), (0, "o", ())),
    Call("states of both", listing(ONGOING, EMPTY), BOTH),
    Call("state of others", listing("PrepareCommit", "CompleteAbort", "Dead"), (0, "", ())),
    Call("state in lower case", listing("ongoing"), (0, "", ("ongoing",))),
    Call("state in upper case beside another", listing("ONGOING", EMPTY), (0, "e", ("ONGOING",))),
    Call("state with a blank", listing(ONGOING + " "), (0, "", (ONGOING + " ",))),
    Call("state without a name", listing(""), (0, "", ("",))),
    Call("state unknown twice", listing("none", "none", ONGOING), (0, "o", ("none",))),
    Call("producer_id twice", listing(producer_id_filters=ids(None, None)), (0, "o", ())),
    Call("producer_id -1", listing(producer_id_filters=ids(-1)), (0, "", ())),
    Call("producer_id largest", listing(producer_id_filters=ids(INT64_MAX)), (0, "", ())),
    Call("producer_id unknown beside a known one", listing(producer_id_filters=ids(-2, None)), (0, "o", ())),
    Call("producer_id and state of another", listing(EMPTY, producer_id_filters=ids(None)), (0, "", ())),
    Call("producer_id, unknown state", listing("none", producer_id_filters=ids(None)), (0, "", ("none",))),
    Call("duration -2", listing(duration_filter=-2), BOTH, versions=(1, None)),
    Call("duration smallest", listing(duration_filter=INT64_MIN), BOTH, versions=(1, None)),
    Call("duration of an hour", listing(ONGOING, duration_filter=3_600_000), (0, "", ()), versions=(1, None)),
    Call("duration largest", listing(ONGOING, duration_filter=INT64_MAX), (0, "", ()), versions=(1, None)),
    *(
        Call(f"pattern {name}", listing(*states, transactional_id_pattern=build), answer, versions=(2, None))
        for name, states, build, answer in [
            ("null", (), None, BOTH),
            ("empty", (), "", BOTH),
            ("of one", (), pattern(lambda one, two: one), (0, "o", ())),
            ("of the beginning", (), pattern(lambda one, two: one[:-1]), (0, "", ())),
            ("of the end", (), pattern(lambda one, two: one[1:]), (0, "", ())),
            ("of both", (), pattern(lambda one, two: f"{one}|{two}"), BOTH),
            ("in upper case", (), pattern(lambda one, two: one.upper()), (0, "", ())),
            ("and state of another", (EMPTY,), pattern(lambda one, two: one), (0, "", ())),
            ("that is not closed", (), "(", (ErrorCode.INVALID_REGULAR_EXPRESSION, "", ())),
        ]
    ),
]  # fmt: skip


@pytest.fixture
def list_world(cluster: Cluster) -> ListWorld:
    return ListWorld(cluster)


@clause("FLD-8", "ListTransactions")
@defect(Reply(ListTransactionsRequest, "transaction_states", ()))
@pytest.mark.parametrize("rows", shared(*FILTERED))
def test_fields_of_a_list_of_transactions(list_world: ListWorld, rows: Sequence[Call]) -> None:
    check_all(no_items(ListTransactionsRequest, ListWorld.listed), rows, list_world, list_world.broker)


# -- DescribeTransactions, FindCoordinator -----------------------------------------------------------------


def describe(*changes: Callable[[str], str]) -> Callable[[World], Any]:
    """Return a builder of a request for a transactional id, changed in each of these ways."""

    def build(world: World) -> DescribeTransactionsRequest:
        name = world.open_producer().id
        return DescribeTransactionsRequest(transactional_ids=tuple(change(name) for change in changes))

    return build


def read_states(reply: Any) -> tuple[tuple[int, str], ...]:
    """Return error code and state of each answer."""
    return tuple(sorted((each.error_code, each.transaction_state) for each in reply.transaction_states))


def found(**fields: Any) -> Callable[[World], Any]:
    return lambda world: FindCoordinatorRequest(**{"key_type": TRANSACTION_KEY, **fields})


def read_coordinators(reply: Any) -> list[tuple[str, int]]:
    """Return key and error code of each answer, in their order."""
    return [(each.key, each.error_code) for each in reply.coordinators]


ABSENT: Final = frozenset({((NOT_FOUND, ""),), ((ErrorCode.NOT_COORDINATOR, ""),)})
"""An unknown transactional id may have another coordinator."""
BESIDE: Final = frozenset({((0, ONGOING), *absent) for absent in ABSENT})
DESCRIBED: Final = [
    Call("transactional_ids empty", describe(), (), read_states),
    Call("transactional_id twice", describe(str, str), ((0, ONGOING),) * 2, read_states),
    Call("transactional_id in upper case", describe(str, str.upper), BESIDE, read_states),
    Call("transactional_id with a blank", describe(str, lambda name: name + " "), BESIDE, read_states),
    Call("transactional_id empty", describe(str, lambda name: ""), ((0, ONGOING), (INVALID, "")), read_states),
]
SEARCHED: Final = [
    Call("key empty", found(key=""), 0, read_error, (1, 3)),
    Call("keys empty", found(), [], read_coordinators, (4, None)),
    *(
        Call(name, found(coordinator_keys=keys), [(key, 0) for key in keys], read_coordinators, (4, None))
        for name, keys in [("key twice", ("a", "b", "a")), ("key empty", ("a", "")), ("key long", (LONG_NAME,))]
    ),
]  # fmt: skip


@clause("FLD-8", "DescribeTransactions")
@defect(Reply(DescribeTransactionsRequest, "transaction_states.error_code", increment))
@pytest.mark.parametrize("rows", shared(*DESCRIBED))
def test_fields_of_a_description_of_transactions(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(DescribeTransactionsRequest, send_call), rows, world, world.broker)


@clause("FLD-8", "FindCoordinator")
@defect(Reply(FindCoordinatorRequest, "coordinators.error_code", increment))
@pytest.mark.parametrize("rows", shared(*SEARCHED))
def test_fields_of_a_search_for_transaction_coordinators(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(FindCoordinatorRequest, send_call), rows, world, world.broker)
