"""A sound chain with one thing changed: what is sound still is found so, and what is not is found."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from responder.cli import cli

SOUND = Path(__file__).parents[1] / "data" / "chains" / "sound"
UP = 'namespace_workload:busy_ratio:avg{workload_type="deployment"} > 0.85'
VALUE = "value: '{{ $value }}'"
Write = Callable[..., Path]


@pytest.fixture
def chain(tmp_path: Path) -> Write:
    """Writes the sound chain with texts replaced, and whole files besides; its directory."""

    def write(*changes: tuple[str, str], **files: str) -> Path:
        for file in SOUND.iterdir():
            text = file.read_text()
            for old, new in changes:
                text = text.replace(old, new)
            (tmp_path / file.name).write_text(text)
        for name, text in files.items():
            (tmp_path / name.replace("__", ".")).write_text(text)
        return tmp_path

    return write


def check(*args: str | Path) -> Result:
    return CliRunner().invoke(cli, ["check", *map(str, args)])


def codes(*args: str | Path) -> set[str]:
    """Those of errors and warnings."""
    lines = check(*args).output.splitlines()
    return {
        line.rpartition("[")[2].rstrip("]") for line in lines if ": error: " in line or ": warning: " in line
    }


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ('{{ printf "%.2f" $value }}', set()),
        ('{{ $value | printf "%.0f" }}', set()),
        ("{{ .Value }}", set()),
        ('{{ with query "sum(a)" }}{{ . | first | value }}{{ end }}', set()),
        ("{{ $v := $value }}{{ $v }}", set()),
        ('{{ printf "%.0f%%" $value }}', {"value-missing"}),
        ("{{ $value | humanize }}", {"value-missing"}),
        ("{{ $value }} requests", {"value-missing"}),
        ("{{ $labels.workload }}", {"value-missing"}),
    ],
)
def test_an_annotation_to_size_by_is_a_bare_number(chain: Write, annotation: str, expected: set[str]) -> None:
    """However the template says it; and words are none."""
    sized = (
        "type: Percent\n      value: 50",
        "type: Utilization\n      target: 0.7\n      valueFrom: {annotation: value}",
    )
    assert codes(chain(sized, (VALUE, f"value: '{annotation}'"))) == expected


@pytest.mark.parametrize(
    "template", ["{{ $value }}", '{{ printf "%.0f" $value }}', '{{ query "a" | first | value }}']
)
def test_no_value_of_a_query_may_be_in_a_label(chain: Write, template: str) -> None:
    """Neither the alert's own nor that of another query: each change of it is a new alert."""
    assert codes(chain(("action: scale_up", f"action: scale_up\n      level: '{template}'"))) == {
        "value-in-label"
    }


def test_an_alert_that_compares_with_bool_always_fires(chain: Write) -> None:
    """0 is a value too."""
    assert codes(chain((UP, UP.replace("> ", "> bool ")))) == {"always-fires"}


def test_thresholds_cross_also_where_the_number_stands_ahead(chain: Write) -> None:
    """`0.2 < a` and `0.3 > a` overlap."""
    series = UP.removesuffix(" > 0.85")
    assert codes(chain((UP, f"0.2 < {series}"))) == {"no-hysteresis"}


def outside(label: str) -> str:
    return (
        f"global: {{external_labels: {{{label}}}}}\n"
        "alerting: {alertmanagers: [{static_configs: [{targets: ['127.0.0.1:9093']}]}]}\n"
    )


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        (None, set()),
        ("cluster: prod-eu", set()),
        ("cluster: '${CLUSTER}'", set()),
        ("cluster: prod-us", {"unrouted", "no-policy", "policy-unreached"}),
        ("zone: a", {"unrouted", "no-policy", "policy-unreached"}),
    ],
    ids=["nobody says which", "the same", "from the environment", "another", "others alone"],
)
def test_prometheus_adds_its_own_labels_to_alerts(
    chain: Write, label: str | None, expected: set[str]
) -> None:
    """Where the rules leave no cluster, external_labels give one, and routes and policies go by it."""
    directory = chain(
        ("by (cluster, ", "by ("),
        ("['namespace=\"inference\"']", "['cluster=\"prod-eu\"']"),
        ("['action=~\"scale_up|", "['cluster=\"prod-eu\"', 'action=~\"scale_up|"),
    )
    more: tuple[str | Path, ...] = ()
    if label is not None:
        (directory / "prometheus.conf").write_text(outside(label))
        more = ("--prometheus", directory / "prometheus.conf")
    assert codes(directory, *more) == expected


def test_a_route_whose_matchers_contradict_each_other_takes_nothing(chain: Write) -> None:
    """Two values of one label cannot be, though nobody knows which values there are."""
    both = """['team="a"', 'team="b"', 'action=~"scale_up|"""
    assert codes(chain(("""['action=~"scale_up|""", both))) == {"unrouted"}
