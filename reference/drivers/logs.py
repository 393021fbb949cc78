"""Where log lines go: standard error, as text or one JSON object each; state changes to a file of their own."""

import json
import logging
import os
import time
from pathlib import Path
from typing import Final

from reference.config import BrokerConfig
from reference.drivers.tcp import LOGGERS

STATE_CHANGE: Final = f"{LOGGERS}.state.change"
STATE_CHANGE_FILE: Final = "state-change.log"
LEVEL: Final = "HIGHWATER_LOG"


class Utc(logging.Formatter):
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(record.created))
        return f"{stamp},{record.msecs:03.0f}"


class Text(Utc):
    """`[2026-11-21 14:39:24,123] INFO broker 1 …`, in UTC: lines of many brokers sort by their beginning."""

    def __init__(self, broker_id: int) -> None:
        super().__init__(f"[%(asctime)s] %(levelname)s broker {broker_id} %(message)s (%(name)s)")


class Json(Utc):
    def __init__(self, broker_id: int) -> None:
        super().__init__()
        self._broker_id = broker_id

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "broker": self._broker_id,
            "logger": record.name.removeprefix(f"{LOGGERS}."),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr(level: str = "") -> None:
    """For a node without a broker id."""
    logging.basicConfig(level=level or os.environ.get(LEVEL, "WARNING"), format="%(asctime)s %(levelname)s %(message)s")


def log_as(config: BrokerConfig, folder: Path) -> None:
    """Everything from the level of `HIGHWATER_LOG` on to standard error, and each state change to its file."""
    stderr = logging.StreamHandler()
    stderr.setFormatter(Json(config.broker_id) if config.log_format == "json" else Text(config.broker_id))
    stderr.setLevel(os.environ.get(LEVEL, "WARNING"))
    logging.getLogger().addHandler(stderr)
    changes = logging.FileHandler(folder / STATE_CHANGE_FILE, encoding="utf-8")
    changes.setFormatter(Text(config.broker_id))
    logging.getLogger(STATE_CHANGE).addHandler(changes)
    logging.getLogger(LOGGERS).setLevel(logging.INFO)
