"""Encode and decode every message, so that a simulation also tests the codecs; this does not change any run."""

from typing import Any, Final

import msgspec

from highwater.reference.effects import Request, Response
from highwater.reference.store.messages import StoreMessage
from highwater.reference.wire.framing import decode_request, decode_response, encode_request, encode_response

SIZE: Final = 4  # length of the size prefix, which the frame reader removes
_STORE_ENCODER: Final = msgspec.msgpack.Encoder()
_STORE_DECODER: Final = msgspec.msgpack.Decoder(StoreMessage)


def through_the_wire(message: Any) -> Any:
    """Return an equal message, decoded from the encoded bytes."""
    if isinstance(message, Request) and message.body is not None:
        frame = encode_request(message.body, message.api_version, message.correlation_id, message.client_id)
        header, body = decode_request(frame[SIZE:])
        return Request(
            header.correlation_id, header.api_version, body, header.client_id, client_host=message.client_host
        )
    if isinstance(message, Response) and message.body is not None:
        frame = encode_response(message.body, message.api_version, message.correlation_id)
        number, body = decode_response(type(message.body), message.api_version, frame[SIZE:])
        return Response(number, message.api_version, body)
    if isinstance(message, StoreMessage):
        return _STORE_DECODER.decode(_STORE_ENCODER.encode(message))
    return message
