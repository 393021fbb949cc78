"""What Jepsen prints about operations, and the key-value histories of Porcupine's tests.

The lines have the format of test_data/jepsen/etcd_*.log and test_data/kv/*.txt of anishathalye/porcupine; the values
are made up here. The verdicts on the original files agree with those in porcupine_test.go.
"""

from pathlib import Path

import pytest

from highwater.errors import UsageError, Verdict
from highwater.reports.audit import audit
from highwater.reports.importers.formats import open_history

HEALTHY = """\
INFO  jepsen.util - 0\t:invoke\t:read\tnil
INFO  jepsen.util - 3\t:invoke\t:write\t4
INFO  jepsen.util - 0\t:ok\t:read\tnil
INFO  jepsen.util - 3\t:ok\t:write\t4
INFO  jepsen.util - 1   :invoke :cas    [4 3]
INFO  jepsen.util - 2   :invoke :cas    [0 3]
INFO  jepsen.util - 2   :fail   :cas    [0 3]
INFO  jepsen.util - 1   :ok     :cas    [4 3]
INFO  jepsen.util - 0\t:invoke\t:read\tnil
INFO  jepsen.util - 0\t:ok\t:read\t3
INFO  jepsen.util - 4  :invoke :write  2
INFO  jepsen.util - 4  :info   :write  :timed-out
INFO  jepsen.util - 0  :invoke :read   nil
INFO  jepsen.util - 0  :fail   :read   :timed-out
"""


def written(folder: Path, text: str) -> Path:
    (folder / "etcd.log").write_text(text)
    return folder / "etcd.log"


def read_of(value: int) -> str:
    return f"INFO  jepsen.util - 8\t:invoke\t:read\tnil\nINFO  jepsen.util - 8\t:ok\t:read\t{value}\n"


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ("", Verdict.VALID),
        (read_of(3), Verdict.VALID),
        (read_of(2), Verdict.VALID),  # the write that timed out
        (read_of(4), Verdict.INVALID),
        (read_of(2) + read_of(3), Verdict.INVALID),
    ],
)
def test_a_register_in_a_log_is_audited(tmp_path: Path, more: str, verdict: Verdict) -> None:
    result = audit(written(tmp_path, HEALTHY + more))
    assert (result.verdict, result.format, result.quarantine.count) == (verdict, "jepsen-log", 0)


def test_lines_of_other_loggers_are_passed_over(tmp_path: Path) -> None:
    other = "INFO  jepsen.core - Worker 3 starting\n2014-06-07 WARN [main] clj-ssh.ssh - cas\n\n"
    assert audit(written(tmp_path, other + HEALTHY)).quarantine.count == 0


@pytest.mark.parametrize(
    ("line", "mattering"),
    [
        ("INFO  jepsen.util - 3\t:ok\t:wri", 1),  # a completion of another operation
        ("INFO  jepsen.util - 3\t:o", 1),
        ("INFO  jepsen.util - 3\t:ok\t:cas\t[4", 1),
        ("FO  jepsen.ut", 1),
        ("INFO  jepsen.util - :nemesis\t:in", 0),
        ("INFO  jepsen.util - :nemesis\t:info\t:start\t[broken", 0),
    ],
)
def test_a_damaged_line_is_quarantined(tmp_path: Path, line: str, mattering: int) -> None:
    result = audit(written(tmp_path, HEALTHY + line + "\n"))
    assert (result.quarantine.count, result.quarantine.mattering) == (1, mattering)
    assert result.verdict is (Verdict.UNKNOWN if mattering else Verdict.VALID)


def test_faults_in_a_log_are_no_operations(tmp_path: Path) -> None:
    path = written(tmp_path, HEALTHY + "INFO  jepsen.util - :nemesis\t:info\t:start\tnil\n")
    assert [event.f for event in open_history(str(path)).events if event.process == "nemesis"] == ["restart"]


def kv(process: int, f: str, key: str, argument: str, result: str | None = None) -> str:
    shared = f'{{:process {process}, :type %s, :f :{f}, :key "{key}", :value "%s"}}\n'
    return shared % (":invoke", argument) + shared % (":ok", argument if result is None else result)


STORE = (
    kv(0, "get", "0", "")
    + kv(0, "put", "0", "")
    + kv(0, "append", "0", "x 0 0 y")
    + kv(1, "append", "0", "x 1 0 y")
    + kv(1, "append", "1", "x 1 1 y")
)


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        (kv(2, "get", "0", "", "x 0 0 yx 1 0 y"), Verdict.VALID),
        (kv(2, "get", "1", "", "x 1 1 y"), Verdict.VALID),
        (kv(2, "get", "2", "", ""), Verdict.VALID),
        (kv(2, "get", "0", "", "x 1 0 yx 0 0 y"), Verdict.INVALID),
        (kv(2, "get", "0", "", "x 1 0 y"), Verdict.INVALID),
        (kv(2, "get", "1", "", ""), Verdict.INVALID),
        (kv(2, "put", "0", "z") + kv(2, "append", "0", "a") + kv(2, "get", "0", "", "za"), Verdict.VALID),
    ],
)
def test_a_key_value_store_is_a_register_for_each_key(tmp_path: Path, more: str, verdict: Verdict) -> None:
    result = audit(written(tmp_path, STORE + more))
    assert (result.verdict, result.format, result.quarantine.count) == (verdict, "jepsen-edn", 0)


def test_an_append_without_a_key_is_no_known_workload(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no known workload"):
        audit(written(tmp_path, "{:process 0, :type :invoke, :f :append, :value 1}\n"))
