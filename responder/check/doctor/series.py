"""The series that the chain needs: there, fresh and labelled; and the GPUs and workloads that have none."""

import json
import re
from collections.abc import Iterator

from responder.check.chain import PLACED, Alert, Chain, Fate, parseable
from responder.check.doctor.prometheus import query
from responder.check.doctor.servers import Server, Unanswered
from responder.check.expressions import parse, selectors
from responder.check.findings import Finding, error, note, warning
from responder.policy import Trigger

_STALE_SECONDS = 90.0
"""The service's default --value-max-age."""
_GPU = "nvidia_com_gpu|nvidia_com_gpu_shared|nvidia_com_mig_.+|amd_com_gpu|habana_ai_gaudi|gpu_intel_com_.+"
_NODES = (
    f'sum by (node) (kube_node_status_allocatable{{resource=~"{_GPU}"}}) > 0 unless on (node) gpu:device:info'
)
_WORKLOADS = (
    "group by (namespace, workload) ("
    f'group by (namespace, pod) (kube_pod_container_resource_requests{{resource=~"{_GPU}"}} > 0)'
    " * on (namespace, pod) group_left (workload)"
    " group by (namespace, pod, workload) (namespace_pod:workload:info))"
    " unless on (namespace, workload) namespace_workload:gpu_utilization_ratio:avg"
)


def check(server: Server, chain: Chain) -> Iterator[Finding]:
    """Every fault of the series; as far as the server answers."""
    try:
        yield from _alerts(server, chain)
        yield from _values(server, chain)
        yield from _unseen(server)
    except Unanswered as problem:
        said = f"{server.name} {problem}, so that series were not looked at to the end."
        yield warning(server.place, 0, "series-unknown", said, "try again when it answers")


def _names(chain: Chain, expr: str) -> list[str]:
    try:
        found = [name for selector in selectors(parse(expr)) for name in chain.records.names(selector) or ()]
    except ValueError:
        return []
    return list(dict.fromkeys(found))


def _first(chain: Chain, expr: str) -> str:
    """The series without which the alert cannot fire: the first that its expression names."""
    return next(iter(_names(chain, expr)), "")


def _alerts(server: Server, chain: Chain) -> Iterator[Finding]:
    wanted = {alert.name: _first(chain, alert.rule.expr) for alert in chain.scaling}
    names = sorted({name for name in wanted.values() if name})
    there = {name: _age(server, name) for name in names}
    silent = [alert for alert in chain.scaling if there.get(wanted[alert.name]) is None]
    if chain.scaling and len(silent) == len(chain.scaling):
        said = f"None of the series that scaling alerts look at is there ({', '.join(names[:3])} and so on)."
        mend = (
            "check that the exporters, kube-state-metrics and the servers are scraped, and the rules loaded"
        )
        yield error(server.place, 0, "series-missing", said, mend)
        return
    for alert in silent:
        yield _silent(server, chain, alert, wanted[alert.name])
    for name, age in there.items():
        if age is not None and age > _STALE_SECONDS:
            said = f"The newest sample of {name} is {age:.0f} s old."
            yield warning(server.place, 0, "series-stale", said, "look for failing scrapes or late rules")


def _silent(server: Server, chain: Chain, alert: Alert, name: str) -> Finding:
    said = f"{alert.name} cannot fire, since {name} has no series."
    made_of = [each for _, rule in chain.records.by_name.get(name, ()) for each in _names(chain, rule.expr)]
    lacking = [each for each in made_of if _age(server, each) is None]
    if lacking:
        said = f"{alert.name} cannot fire, since {name} has no series for want of {', '.join(lacking[:3])}."
    return note(
        server.place, 0, "series-missing", said, "scrape what gives it, or leave it if you have none of these"
    )


def _age(server: Server, name: str) -> float | None:
    """Seconds since the newest sample; None if there is none."""
    selector = name if re.fullmatch(r"[a-zA-Z_:][\w:]*", name, re.ASCII) else f"{{{json.dumps(name)}}}"
    found = query(server, f"time() - max(timestamp({selector}))")
    return found[0].value if found else None


def _values(server: Server, chain: Chain) -> Iterator[Finding]:
    """What policies size by, and the labels by which they ask."""
    asked: dict[str, tuple[set[str], str]] = {}
    for alert in chain.scaling:
        for fate in alert.fates:
            for name, labels, trigger in _asked(fate):
                asked.setdefault(name, (set(), trigger))[0].update(labels)
    for name, (labels, trigger) in sorted(asked.items()):
        age = _age(server, name)
        if age is None:
            said = f"{name}, by which trigger {trigger} is sized, has no series."
            yield warning(server.place, 0, "value-unseen", said, "scrape the servers that give it")
            continue
        if age > _STALE_SECONDS:
            said = f"The newest sample of {name}, by which trigger {trigger} is sized, is {age:.0f} s old."
            yield warning(server.place, 0, "series-stale", said, "look for failing scrapes or late rules")
        for label in sorted(labels):
            without = query(server, f'count({name}{{{label}=""}})')
            if without and without[0].value:
                said = f"{without[0].value:.0f} series of {name} have no {label}, by which trigger {trigger} asks."
                yield warning(
                    server.place, 0, "series-unlabelled", said, f"keep {label} in the rule that records it"
                )


def _asked(fate: Fate) -> Iterator[tuple[str, set[str], str]]:
    source = fate.trigger.scale.value_from if isinstance(fate.trigger, Trigger) else None
    if source is None or not source.query or fate.trigger is None:
        return
    try:
        for selector in selectors(parse(parseable(source.query))):
            if selector.name:
                labels = {matcher.name for matcher in selector.matchers.matchers if matcher.value == PLACED}
                yield str(selector.name), labels, fate.trigger.name
    except ValueError:
        return


def _unseen(server: Server) -> Iterator[Finding]:
    nodes = sorted(each.labels.get("node", "") for each in query(server, _NODES))
    if nodes:
        said = f"{len(nodes)} nodes offer GPUs of which there are no metrics: {_few(nodes)}."
        mend = "run the vendor's exporter there, and check that it is scraped"
        yield warning(server.place, 0, "gpus-unseen", said, mend)
    down = query(server, "node:gpu_exporter_up:min == 0")
    if down:
        names = sorted(each.labels.get("node") or each.labels.get("instance", "") for each in down)
        said = f"{len(names)} GPU exporters cannot be scraped: {_few(names)}."
        yield warning(server.place, 0, "exporter-down", said, "see docs/runbooks/GPUExporterDown.md")
    workloads = sorted(
        f"{each.labels.get('namespace')}/{each.labels.get('workload')}" for each in query(server, _WORKLOADS)
    )
    if workloads:
        said = f"{len(workloads)} workloads hold GPUs, and no GPU metric is theirs: {_few(workloads)}."
        mend = "let the exporter name pods (see docs/runbooks/GPUAttributionMissing.md)"
        yield warning(server.place, 0, "workloads-unseen", said, mend)


def _few(names: list[str]) -> str:
    more = len(names) - 5
    return f"{', '.join(names[:5])}{f' and {more} more' if more > 0 else ''}"
