"""Findings and chain, as people and programs read them."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

import click

from responder.check.chain import Link
from responder.check.findings import Finding, Severity, failing
from responder.client.tables import Column, clean, console, show, styled
from responder.deciding.words import count

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def print_findings(findings: Sequence[Finding]) -> None:
    """As a compiler prints them, so that editors can jump: `file:line: severity: sentence [code]`."""
    for _, group in groupby(findings, key=lambda finding: finding.file):
        for finding in group:
            place = (
                f"{finding.file}:{finding.line}: "
                if finding.line
                else f"{finding.file}: "
                if finding.file
                else ""
            )
            word = click.style(finding.severity, fg=_COLOURS[finding.severity], bold=True)
            click.echo(f"{clean(place)}{word}: {clean(finding.message)} [{finding.code}]")
            if finding.mend:
                click.echo(f"    mend: {clean(finding.mend)}")
        click.echo()


def print_links(links: Sequence[Link]) -> None:
    """The way of each scaling alert."""
    columns = [
        Column("ALERT", middle=True, give=True, least=16),
        Column("ROUTE", give=True, least=12, drop=3),
        Column("RECEIVER", drop=2),
        Column("POLICY/TRIGGER"),
        Column("TARGET", give=True, least=16),
        Column("AFTER", right=True),
        Column("RESOLVE", give=True, least=16, drop=4),
    ]
    rows = []
    for link in links:
        trigger = f"{link.policy}/{link.trigger}" if link.trigger else link.policy
        rows.append(
            [
                link.alert,
                link.route or styled("none", "red"),
                link.receiver or styled("none", "red"),
                trigger or styled("none", "red"),
                link.target or "-",
                "-" if link.delay_seconds is None else f"{link.delay_seconds:g} s",
                link.resolve or "-",
            ]
        )
    show(console(), columns, rows)


def summary(findings: Sequence[Finding]) -> str:
    """`2 errors, 1 warning`."""
    numbers = [
        (sum(finding.severity is severity for finding in findings), severity.value) for severity in Severity
    ]
    said = ", ".join(count(number, word) for number, word in numbers if number)
    return said or "all well"


def as_json(findings: Sequence[Finding], links: Sequence[Link], **more: Any) -> dict[str, Any]:
    """For programs: keys as in the HTTP API, in camelCase."""
    return {
        "ok": not failing(findings),
        "findings": [asdict(finding) for finding in findings],
        "chain": [_camel(asdict(link)) for link in links],
        **more,
    }


def _camel(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "".join(part if index == 0 else part.title() for index, part in enumerate(key.split("_"))): value
        for key, value in record.items()
    }
