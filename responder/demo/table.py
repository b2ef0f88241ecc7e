"""The demo's live table. In a terminal it redraws; elsewhere it prints a line when something changes."""

from dataclasses import dataclass

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from responder.demo.run import Demo, workload_of
from responder.demo.watch import Snapshot, Verdict

_BAR = 20


def panel(demo: Demo, snapshot: Snapshot) -> Group:
    """The table, for a terminal."""
    truth = snapshot.truth
    workload = workload_of(truth)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", min_width=13)
    table.add_column()
    table.add_row(
        "time", f"{(truth['loadSeconds'] or 0) / 60:.0f} simulated minutes, {demo.options.speed:g}x"
    )
    table.add_row(
        "load",
        f"{workload['requestsPerSecond']:.1f} requests/s, {workload['inFlight']:.0f} in flight, "
        f"{workload['waiting']:.0f} of them waiting",
    )
    table.add_row("utilization", f"{_bar(workload['utilization'])} {workload['utilization']:.0%}")
    table.add_row("replicas", _replicas(demo, workload))
    table.add_row("alerts", ", ".join(snapshot.firing) or "none")
    table.add_row("last decision", _told(snapshot.verdict))
    table.add_row("last change", _told(next(iter(snapshot.changes), None)))
    addresses = demo.addresses
    return Group(
        table,
        Text(
            f"\nPrometheus {addresses.prometheus}   Alertmanager {addresses.alertmanager}   "
            f"responder {addresses.responder}",
            style="dim",
        ),
        Text(f"logs {demo.directory}   Ctrl-C ends", style="dim"),
    )


def _told(verdict: Verdict | None) -> Text:
    return Text(f"{verdict.reason}: {verdict.message}" if verdict else "none yet")


def _replicas(demo: Demo, workload: dict[str, float]) -> Text:
    wanted, ready = int(workload["replicasWanted"]), int(workload["ready"])
    text = Text("■" * ready + "□" * max(0, wanted - ready))
    text.append(f" {wanted} wanted, {ready} ready ({demo.min_replicas} to {demo.max_replicas} allowed)")
    return text


def _bar(share: float) -> str:
    full = round(min(1.0, max(0.0, share)) * _BAR)
    return "█" * full + "░" * (_BAR - full)


@dataclass(slots=True)
class Lines:
    """The same as lines, for a log: one when alerts, replicas or the decision change."""

    console: Console
    last: tuple[object, ...] = ()
    changes: int = 0
    """How many changes of replicas have been told."""
    verdict: Verdict | None = None

    def show(self, snapshot: Snapshot) -> None:
        workload = workload_of(snapshot.truth)
        key = (snapshot.firing, workload["replicasWanted"], workload["ready"], snapshot.verdict)
        if key == self.last:
            return
        self.last = key
        minute = (snapshot.truth["loadSeconds"] or 0) / 60
        self._line(
            f"{minute:6.1f} min  {workload['requestsPerSecond']:4.1f} req/s  "
            f"util {workload['utilization']:4.0%}  "
            f"replicas {workload['ready']:.0f}/{workload['replicasWanted']:.0f}  "
            f"{', '.join(snapshot.firing) or 'no alert'}"
        )
        for verdict in self._news(snapshot):
            self._line(f"            {verdict.reason}: {verdict.message}")

    def _news(self, snapshot: Snapshot) -> list[Verdict]:
        """Every change of replicas, however short it was the newest word, and the newest word."""
        news = list(reversed(snapshot.changes[: len(snapshot.changes) - self.changes]))
        self.changes = len(snapshot.changes)
        newest = snapshot.verdict
        if newest is not None and newest != self.verdict and newest not in news:
            news.append(newest)
        self.verdict = newest
        return news

    def _line(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)
