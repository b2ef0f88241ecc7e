"""The project's nouns as JSON, for the store: dataclasses out, dataclasses back."""

from typing import Any, TypeVar

import msgspec

from responder.errors import StoreUnavailable

T = TypeVar("T")

_encoder = msgspec.json.Encoder()


_decoders: "dict[Any, msgspec.json.Decoder[Any]]" = {}


def _decoder(noun: Any) -> "msgspec.json.Decoder[Any]":
    decoder = _decoders.get(noun)
    if decoder is None:
        decoder = _decoders[noun] = msgspec.json.Decoder(noun)
    return decoder


def encode(noun: Any) -> bytes:
    """The noun as compact JSON."""
    return _encoder.encode(noun)


def decode(body: bytes, noun: type[T]) -> T:
    """Read back what `encode` wrote. Raises StoreUnavailable if the body is not that noun."""
    try:
        decoded: T = _decoder(noun).decode(body)
    except msgspec.MsgspecError as error:
        raise StoreUnavailable(
            f"the store holds a {noun.__name__} that cannot be read ({error}): restore a backup of it"
        ) from error
    return decoded
