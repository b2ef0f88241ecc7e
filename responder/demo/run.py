"""The demo's run: start the parts in order, watch them, decide when the cycle is over, and stop them all."""

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from responder import config
from responder.demo import settings, watch
from responder.demo.processes import (
    HTTP,
    DemoError,
    Program,
    find_program,
    free_port,
    start,
    wait_until_answers,
)
from responder.demo.summary import Facts, counter
from responder.shipped import shipped

TARGET = ("inference", "deployment", "vllm")
"""The workload that the demo follows; the simulated cluster's first."""

SETTLE_MINUTES = 8.0
"""Simulated minutes at the starting count, load gone, after which nothing more is coming."""

MAX_MINUTES = 300.0
"""Simulated minutes after the load's own end at which waiting for the way down is over."""


@dataclass(frozen=True, slots=True)
class Options:
    speed: float = 60.0
    trace: Path | None = None
    port: int = 0
    keep: bool = False
    duration: float | None = None
    """Real seconds after which to end; None is until the cycle is over."""
    dcgm_generation: str = "4.8"


@dataclass(slots=True)
class Demo:
    """The running parts. Made by `running`, which stops them whatever happens."""

    options: Options
    directory: Path
    addresses: watch.Addresses
    programs: list[Program]
    min_replicas: int
    max_replicas: int
    started_at_replicas: int = 0
    faults: list[str] = field(default_factory=list)

    def look(self) -> watch.Snapshot:
        """One look at all parts. Raises DemoError when one of them has ended or does not answer."""
        for program in self.programs:
            program.check()
        verdict, changes = watch.last_verdicts(self.addresses.responder, *TARGET)
        return watch.Snapshot(
            truth=watch.get(f"{self.addresses.sim}/sim/truth"),
            firing=watch.firing_alerts(self.addresses.prometheus),
            verdict=verdict,
            changes=changes,
        )

    def facts(self) -> Facts:
        """Measure the run so far."""
        truth = watch.get(f"{self.addresses.sim}/sim/truth")
        workload = workload_of(truth)
        sent, failed = watch.notifications(self.addresses.alertmanager)
        missed = watch.prometheus_value(
            self.addresses.prometheus, "prometheus_rule_group_iterations_missed_total"
        )
        text = watch.text(f"{self.addresses.prometheus}/metrics")
        failures = counter(text, "prometheus_rule_evaluation_failures_total")
        if missed is None:
            missed = counter(text, "prometheus_rule_group_iterations_missed_total")
        return Facts(
            scales=watch.scales(self.addresses.sim, TARGET),
            min_replicas=self.min_replicas,
            max_replicas=self.max_replicas,
            peak_utilization=workload["peakUtilization"],
            mean_utilization=workload["meanUtilization"],
            minutes_saturated=workload["minutesSaturated"],
            minutes=(truth["loadSeconds"] or 0) / 60,
            latencies=watch.latencies(self.addresses.responder, *TARGET, up=True),
            latencies_down=watch.latencies(self.addresses.responder, *TARGET, up=False),
            deliveries_sent=sent,
            deliveries_failed=failed,
            deliveries_taken=watch.deliveries_taken(self.addresses.responder),
            evaluations_missed=round(missed),
            evaluation_failures=round(failures),
            speed=self.options.speed,
            faults=tuple(self.faults),
        )


def workload_of(truth: dict[str, object]) -> dict[str, float]:
    """The figures of the workload that the demo follows."""
    workloads = truth["workloads"]
    assert isinstance(workloads, list)
    namespace, _, name = TARGET
    for workload in workloads:
        if (workload["namespace"], workload["name"]) == (namespace, name):
            return dict(workload)
    raise DemoError(f"The simulated cluster has no {'/'.join(TARGET)}.")


@contextlib.contextmanager
def running(options: Options, directory: Path, say: Callable[[str], None]) -> Iterator[Demo]:
    """Start everything, in the order in which each needs the others, and stop it in the reverse.

    Raises DemoError, ConfigError.
    """
    prometheus = find_program(("prometheus",), "prometheus")
    alertmanager = find_program(("prometheus-alertmanager", "alertmanager"), "prometheus-alertmanager")
    ports = {
        "responder": free_port(options.port),
        **{name: free_port() for name in ("sim", "prometheus", "alertmanager")},
    }
    url = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    addresses = watch.Addresses(**url)
    policy, bounds = _scaled_policy(directory, options.speed)
    rule_file = directory / "rules.yml"
    rule_file.write_text(settings.compressed_rules((shipped("rules"),), options.speed), encoding="utf-8")
    programs: list[Program] = []
    demo = Demo(options, directory, addresses, programs, *bounds)
    try:
        say("Starting the simulated GPU cluster ...")
        programs.append(start("sim", _sim_command(options, ports["sim"], directory), directory))
        wait_until_answers(programs[-1], f"{url['sim']}/sim/truth")
        say("Starting the responder ...")
        programs.append(start("responder", _serve_command(policy, directory, addresses, options), directory))
        wait_until_answers(programs[-1], f"{url['responder']}/-/ready")
        say("Starting Alertmanager ...")
        programs.append(
            start(
                "alertmanager",
                _alertmanager_command(alertmanager, ports, directory, addresses, options),
                directory,
            )
        )
        wait_until_answers(programs[-1], f"{url['alertmanager']}/-/ready")
        say("Starting Prometheus ...")
        programs.append(
            start(
                "prometheus", _prometheus_command(prometheus, ports, directory, addresses, options), directory
            )
        )
        wait_until_answers(programs[-1], f"{url['prometheus']}/-/ready")
        _start_load(demo)
        yield demo
    finally:
        for program in reversed(programs):
            program.stop()


def _start_load(demo: Demo) -> None:
    """Demand begins when Prometheus scrapes and has found Alertmanager: before that nobody would see it."""
    deadline = time.monotonic() + 60
    prometheus = demo.addresses.prometheus
    while True:
        for program in demo.programs:
            program.check()
        up = watch.prometheus_value(prometheus, "up == 1")
        found = watch.get(f"{prometheus}/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
        if up and found:
            break
        if time.monotonic() > deadline:
            raise DemoError(
                f"Prometheus scraped nothing in 60 s; see {demo.directory}/prometheus.log for why."
            )
        time.sleep(0.1)
    HTTP.request("POST", f"{demo.addresses.sim}/sim/load", body=b'{"start": true}')
    truth = watch.get(f"{demo.addresses.sim}/sim/truth")
    demo.started_at_replicas = int(workload_of(truth)["replicasWanted"])


def _scaled_policy(directory: Path, speed: float) -> tuple[Path, tuple[int, int]]:
    source = shipped("examples", "policies.yaml")
    config.load(source)  # A fault is told of the file that a person can mend.
    document = yaml.safe_load(source.read_text(encoding="utf-8"))
    path = settings.write_yaml(directory / "policies.yaml", config.scale_durations(document, speed))
    policies = config.load(path).policies
    return path, (policies[0].min_replicas, policies[0].max_replicas)


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "responder", *words]


def _sim_command(options: Options, port: int, directory: Path) -> list[str]:
    command = _command("sim", "--port", str(port), "--speed", f"{options.speed:g}", "--hold-load")
    command += ["--kubeconfig-out", str(directory / "kubeconfig")]
    command += ["--dcgm-generation", options.dcgm_generation]
    return [*command, "--trace", str(options.trace)] if options.trace else command


def _serve_command(policy: Path, directory: Path, addresses: watch.Addresses, options: Options) -> list[str]:
    return _command(
        "serve",
        "--policy", str(policy),
        "--bind", addresses.responder.removeprefix("http://"),
        "--store", f"sqlite:{directory / 'responder.db'}",
        "--kubeconfig", str(directory / "kubeconfig"),
        "--prometheus-url", addresses.prometheus,
        "--alertmanager-url", addresses.alertmanager,
        "--value-max-age", f"{settings.VALUE_MAX_AGE_SECONDS / options.speed:g}",
        "--log-format", "human",
    )  # fmt: skip


def _alertmanager_command(
    program: str, ports: dict[str, int], directory: Path, addresses: watch.Addresses, options: Options
) -> list[str]:
    webhook = f"{addresses.responder}/api/v1/webhooks/alertmanager"
    file = settings.write_yaml(
        directory / "alertmanager.yml",
        settings.alertmanager_config(shipped("alertmanager", "alertmanager.yml"), webhook, options.speed),
    )
    return [
        program,
        f"--config.file={file}",
        f"--storage.path={directory / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{ports['alertmanager']}",
        "--cluster.listen-address=",
    ]


def _prometheus_command(
    program: str, ports: dict[str, int], directory: Path, addresses: watch.Addresses, options: Options
) -> list[str]:
    file = settings.write_yaml(
        directory / "prometheus.yml",
        settings.prometheus_config(
            addresses.sim,
            f"127.0.0.1:{ports['alertmanager']}",
            f"127.0.0.1:{ports['responder']}",
            directory / "rules.yml",
            options.speed,
        ),
    )
    return [
        program,
        f"--config.file={file}",
        f"--storage.tsdb.path={directory / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{ports['prometheus']}",
        f"--query.lookback-delta={settings.duration(settings.LOOKBACK_SECONDS / options.speed)}",
        f"--rules.alert.resend-delay={settings.duration(settings.RESEND_SECONDS / options.speed)}",
    ]


class Interrupted(Exception):
    """A person or a supervisor asked the demo to end."""


_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGTERM, SIGINT and a closed terminal into Interrupted, so that every part is stopped on the way out."""

    def interrupt(*_: object) -> None:
        # A second signal must not cut the stopping short and leave programs behind.
        for number in _ENDS:
            signal.signal(number, signal.SIG_IGN)
        raise Interrupted

    before = {number: signal.signal(number, interrupt) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(slots=True)
class Cycle:
    """Whether the cycle is over: up, load gone, down again, and quiet for a while."""

    started_at_replicas: int
    gone_up: bool = False
    quiet_since: float | None = None

    def over(self, truth: dict[str, object]) -> bool:
        now = truth["loadSeconds"]
        length = truth["loadDurationSeconds"]
        assert isinstance(now, int | float)
        assert isinstance(length, int | float)
        wanted = workload_of(truth)["replicasWanted"]
        self.gone_up = self.gone_up or wanted > self.started_at_replicas
        if self.gone_up and wanted <= self.started_at_replicas:
            self.quiet_since = now if self.quiet_since is None else self.quiet_since
        else:
            self.quiet_since = None
        done = self.quiet_since is not None and now - self.quiet_since > SETTLE_MINUTES * 60
        return done or now > length + MAX_MINUTES * 60
