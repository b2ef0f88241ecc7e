"""`gpu-responder explain`: what would be decided, or would have been."""

import sys
from collections.abc import Iterable
from contextlib import nullcontext
from datetime import datetime

import click

from responder import config
from responder.client import times
from responder.client.connection import connect, connection_options
from responder.client.names import parts_of
from responder.client.tables import console, output_option, print_json
from responder.errors import ConfigError
from responder.explain import offline, show
from responder.explain.recorded import from_api, from_store
from responder.explain.replay import replay
from responder.policy import Settings
from responder.store import StoredEntry
from responder.webhook import MAX_BYTES, BadPayload


@click.command("explain")
@click.option(
    "--policy",
    "policy",
    metavar="FILE",
    required=True,
    envvar="GPU_RESPONDER_POLICY",
    help="The policy file.",
)
@click.option("--payload", metavar="FILE", help="What Alertmanager would send; - reads standard input.")
@click.option(
    "--replicas", multiple=True, metavar="[TARGET=]N", help="How many are there.  [default: minReplicas]"
)
@click.option(
    "--ready", multiple=True, metavar="[TARGET=]N", help="How many of them are ready.  [default: all]"
)
@click.option(
    "--value",
    "values",
    multiple=True,
    metavar="TRIGGER=N",
    help="What the trigger's query would answer. Repeatable.",
)
@click.option("--target", metavar="NS/KIND/NAME", help="The target of alerts that do not name theirs.")
@click.option("--at", metavar="TIME", type=times.past_option, help="When it arrives.  [default: now]")
@click.option(
    "--replay", "replaying", is_flag=True, help="Instead of a payload: decide recorded history again."
)
@click.option(
    "--store", metavar="sqlite:PATH", help="With --replay: the service's database.  [default: ask --url]"
)
@click.option(
    "--since",
    metavar="LENGTH|TIME",
    type=times.past_option,
    help="With --replay: only what came after: 2h ago, or a time.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=1000,
    show_default=True,
    help="With --replay: at most so many lines.",
)
@output_option
@connection_options
def explain(
    policy: str,
    payload: str | None,
    replicas: tuple[str, ...],
    ready: tuple[str, ...],
    values: tuple[str, ...],
    target: str | None,
    at: datetime | None,
    replaying: bool,
    store: str | None,
    since: datetime | None,
    limit: int,
    output: str,
    url: str | None,
    token_file: str | None,
    ca_file: str | None,
) -> None:
    """Say what would be decided, without acting.

    With --payload: for each alert of it where it leads, and for each target what would be decided and the chain
    of reasons, as for a service that knows nothing else. No cluster, Prometheus or service is asked.

    With --replay: decides recorded history again under the policy file and shows where it would come out
    differently, so that a change to the file can be reviewed. Exit status 1 if any decision differs.
    """
    if replaying == (payload is not None):
        raise click.UsageError("Say what to explain: either --payload FILE or --replay.")
    settings = config.load(policy)
    if payload is None:
        api = None if store else connect(url, token_file, ca_file)
        recorded = from_api(api, since, limit) if api else from_store(store or "", since, limit)
        sys.exit(_replay(recorded, settings, output))
    given = offline.Given(
        *_counts("--replicas", replicas),
        *_counts("--ready", ready),
        _values(values),
        _target(target),
    )
    sys.exit(_explain(payload, settings, given, at or times.now(), output))


def _replay(recorded: Iterable[StoredEntry], settings: Settings, output: str) -> int:
    """Show what would have been decided otherwise; the exit status."""
    found = replay(recorded, settings)
    if output == "json":
        print_json(show.replay_json(found))
    else:
        show.show_replay(console(), found, times.now(), settings.source)
    return 1 if found.differences else 0


def _explain(payload: str, settings: Settings, given: offline.Given, at: datetime, output: str) -> int:
    """Show what a payload would lead to; the exit status."""
    try:
        explanation = offline.explain(_read(payload), settings, given, at)
    except BadPayload as error:
        raise ConfigError(f"{payload}: {error}") from None
    if output == "json":
        print_json(show.explanation_json(explanation))
    else:
        show.show_explanation(console(), explanation)
    return 1 if any(fate.rejected for fate in explanation.fates) else 0


def _read(path: str) -> bytes:
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as file:
            body = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"--payload: {path}: {error.strerror}") from None
    if len(body) > MAX_BYTES:
        raise ConfigError(
            f"--payload: {path} is larger than {MAX_BYTES // 2**20} MiB, which the service would not take"
        )
    return body


def _counts(option: str, texts: Iterable[str]) -> tuple[int | None, dict[str, int]]:
    everywhere: int | None = None
    named: dict[str, int] = {}
    for text in texts:
        key, equals, number = text.rpartition("=")
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            raise click.UsageError(f"{option}: {text!r} is no count: write it like 3, or inference/vllm=3.")
        if equals:
            named[key] = int(number)
        else:
            everywhere = int(number)
    return everywhere, named


def _values(texts: Iterable[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in texts:
        trigger, equals, number = text.partition("=")
        try:
            found[trigger] = float(number)
        except ValueError:
            equals = ""
        if not equals or not trigger:
            raise click.UsageError(f"--value: {text!r} is no value: write it like backlog=42.")
    return found


def _target(text: str | None) -> tuple[str, str, str] | None:
    if text is None:
        return None
    namespace, kind, name = parts_of(text)
    if not kind:
        raise click.UsageError(f"--target: {text!r} is not whole: write namespace/kind/name.")
    return namespace, kind, name
