"""Stored data that cannot be decoded takes its partition offline, as a disk error does; nothing else stops.

Apache Kafka logs the exception and retries, or stops the cleaner; here the operator learns at once which file it is.
"""

from typing import Final

HINT: Final = "restore the file, or delete the folder of this partition so that the broker copies it from the leader"


class DamagedDataError(OSError):
    """Stored bytes are no valid batch or record. The message has the file, the byte, the offset, and what to do."""

    def __init__(self, path: str, position: int, reason: Exception, offset: int | None = None) -> None:
        where = f"{path}, byte {position}" + ("" if offset is None else f", offset {offset}")
        super().__init__(f"{where}: {reason}; {HINT}")
