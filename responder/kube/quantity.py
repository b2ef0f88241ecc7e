"""Kubernetes quantities, such as `500m` CPU or `16Gi` memory, as whole numbers of thousandths."""

import re
from decimal import Decimal
from functools import lru_cache

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]+)|([KMGTPE]i|[numkMGTPE]))?")
_SUFFIX = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(1000),
    **{s: Decimal(1000) ** n for n, s in enumerate("MGTPE", start=2)},
    **{f"{s}i": Decimal(1024) ** n for n, s in enumerate("KMGTPE", start=1)},
}


@lru_cache(maxsize=4096)
def milli(quantity: str | int | float) -> int:
    """Thousandths, rounded up; raises ValueError for what is no quantity."""
    match = _QUANTITY.fullmatch(str(quantity).strip())
    if match is None:
        raise ValueError(f"{quantity!r} is not a Kubernetes quantity")
    number, exponent, suffix = match.groups()
    value = Decimal(number + (exponent or "")) * _SUFFIX.get(suffix or "", Decimal(1))
    return int((value * 1000).to_integral_value(rounding="ROUND_CEILING"))
