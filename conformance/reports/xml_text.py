"""What XML 1.0 can hold."""

import re
from typing import Final

FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml_text(text: str) -> str:
    """Without control characters, which not even an escape lets in; a broker's error message may have them."""
    return FORBIDDEN.sub("\ufffd", text)
