"""One alert through time: what a notification makes of its span, and how it ages. Pure (promises 1 to 6)."""

from dataclasses import replace
from datetime import datetime
from enum import StrEnum

from responder.model import Notification, Span
from responder.policy import Timing

_APART = "@"
"""Stands in no fingerprint."""


def fingerprint_within(fingerprint: str, namespace: str) -> str:
    """What an alert that stands alone is known by when its sender may reach some namespaces only.

    A fingerprint is what a sender says it is. With that of another's alert, such as a hold on the whole cluster, it
    could have resolved that one.
    """
    return f"{fingerprint}{_APART}{namespace}"


def fingerprint_of(known_by: str) -> str:
    """The fingerprint that Alertmanager has for the alert."""
    return known_by.partition(_APART)[0]


class Condition(StrEnum):
    """What an alert is at a moment. Only FIRING triggers; SUPPRESSED and UNKNOWN may still forbid."""

    FIRING = "Firing"
    SUPPRESSED = "Suppressed"
    UNKNOWN = "Unknown"
    FORGOTTEN = "Forgotten"
    RESOLVED = "Resolved"


def condition(span: Span, timing: Timing, now: datetime) -> Condition:
    """What the alert is now. One heard of later than now, by a clock that was set back, is heard of now."""
    if not span.firing:
        return Condition.RESOLVED
    unheard = now - span.last_seen_at
    if unheard >= timing.alert_timeout + timing.forget_after:
        return Condition.FORGOTTEN
    if unheard >= timing.alert_timeout:
        return Condition.UNKNOWN
    return Condition.SUPPRESSED if span.suppressed else Condition.FIRING


def changes_at(span: Span, timing: Timing) -> tuple[datetime, ...]:
    """The moments at which the alert ages, if it is not heard of again."""
    if not span.firing:
        return ()
    unknown = span.last_seen_at + timing.alert_timeout
    return unknown, unknown + timing.forget_after


def heard(span: Span | None, notification: Notification, timing: Timing) -> Span | None:
    """The span after this notification; the same object if it changes nothing."""
    if notification.firing:
        return _fires(span, notification, timing)
    if span is None:
        return None
    return _resolves(span, notification)


def _fires(span: Span | None, notification: Notification, timing: Timing) -> Span:
    if span is None or _forgotten(span, notification, timing):
        return _opened(notification)
    if span.firing:
        return _repeated(span, notification)
    resolved_at = span.resolved_received_at or span.last_seen_at
    if span.ends_at is None or notification.starts_at > span.ends_at:
        # What was received before the resolve was folded before it, and is folded again after a crash.
        return span if notification.received_at < resolved_at else _opened(notification)
    if notification.received_at - resolved_at <= timing.stale_after:
        return span
    return replace(
        span,
        firing=True,
        last_seen_at=notification.received_at,
        annotations=notification.annotations,
    )


def _opened(notification: Notification) -> Span:
    return Span(
        fingerprint=notification.fingerprint,
        labels=notification.labels,
        annotations=notification.annotations,
        firing=True,
        starts_at=notification.starts_at,
        opened_at=notification.received_at,
        last_seen_at=notification.received_at,
        generator_url=notification.generator_url,
    )


def _repeated(span: Span, notification: Notification) -> Span:
    """A repeat tells that it still fires, and what its annotations say now. An older one tells nothing."""
    if notification.received_at < span.last_seen_at:
        return span
    return replace(
        span,
        last_seen_at=notification.received_at,
        annotations=notification.annotations,
        # What is delivered is neither silenced nor inhibited.
        suppressed=False,
        denied_at=None,
    )


def _resolves(span: Span, notification: Notification) -> Span:
    ends_at = notification.ends_at or notification.received_at
    if ends_at < span.starts_at:
        return span
    known = span.ends_at
    if known is not None and ends_at <= known:
        if not span.firing:
            return _seen(span, notification)
        # It re-opened after a resolve; that same resolve, folded once more, is old news.
        if span.resolved_received_at is not None and notification.received_at <= span.resolved_received_at:
            return span
    return replace(
        span,
        firing=False,
        ends_at=ends_at if known is None else max(ends_at, known),
        resolved_received_at=notification.received_at,
        last_seen_at=max(span.last_seen_at, notification.received_at),
        annotations=notification.annotations,
        suppressed=False,
        denied_at=None,
    )


def _seen(span: Span, notification: Notification) -> Span:
    if notification.received_at <= span.last_seen_at:
        return span
    return replace(span, last_seen_at=notification.received_at)


def _forgotten(span: Span, notification: Notification, timing: Timing) -> bool:
    return condition(span, timing, notification.received_at) is Condition.FORGOTTEN
