"""Configure logging: to standard error, as text or JSON lines; state changes also to a separate file."""

import json
import logging
import os
import time
from pathlib import Path
from typing import Final

from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.drivers.tcp import LOGGERS

STATE_CHANGE: Final = f"{LOGGERS}.state.change"
STATE_CHANGE_FILE: Final = "state-change.log"
LEVEL_VARIABLE: Final = "HIGHWATER_LOG"


class UtcFormatter(logging.Formatter):
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(record.created))
        return f"{stamp},{record.msecs:03.0f}"


class TextFormatter(UtcFormatter):
    """Formats `[2026-11-21 14:39:24,123] INFO broker 1 …` in UTC, so that the lines of many brokers can be sorted."""

    def __init__(self, broker_id: int) -> None:
        super().__init__(f"[%(asctime)s] %(levelname)s broker {broker_id} %(message)s (%(name)s)")


class JsonFormatter(UtcFormatter):
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
    """Configure logging for a node without a broker id."""
    logging.basicConfig(
        level=level or os.environ.get(LEVEL_VARIABLE, "WARNING"), format="%(asctime)s %(levelname)s %(message)s"
    )


def log_as(config: BrokerConfig, folder: Path) -> None:
    """Configure a broker: level `HIGHWATER_LOG` and above to standard error, every state change to its file."""
    stderr = logging.StreamHandler()
    stderr.setFormatter(
        JsonFormatter(config.broker_id) if config.log_format == "json" else TextFormatter(config.broker_id)
    )
    stderr.setLevel(os.environ.get(LEVEL_VARIABLE, "WARNING"))
    logging.getLogger().addHandler(stderr)
    changes = logging.FileHandler(folder / STATE_CHANGE_FILE, encoding="utf-8")
    changes.setFormatter(TextFormatter(config.broker_id))
    logging.getLogger(STATE_CHANGE).addHandler(changes)
    logging.getLogger(LOGGERS).setLevel(logging.INFO)
