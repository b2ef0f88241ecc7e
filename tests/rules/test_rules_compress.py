"""Rules in compressed time."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from responder import promql, rules

PACK = Path(__file__).parents[2] / "rules"

UNITS = ("d", "h", "m", "s", "ms")
durations = st.lists(st.integers(0, 59), min_size=len(UNITS), max_size=len(UNITS)).map(
    lambda numbers: "".join(f"{n}{u}" for n, u in zip(numbers, UNITS, strict=True) if n) or "1s"
)
factors = st.one_of(st.integers(1, 5000).map(float), st.floats(0.1, 5000))


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        pytest.param("avg_over_time(x[5m])", "avg_over_time(x[5s])", id="a range"),
        pytest.param("avg_over_time(x[30s])", "avg_over_time(x[500ms])", id="half a second is 500ms"),
        pytest.param("avg_over_time(x[90s])", "avg_over_time(x[1s500ms])", id="one and a half is 1s500ms"),
        pytest.param("max_over_time(x[1h:1m])", "max_over_time(x[1m:1s])", id="a subquery"),
        pytest.param("x[1h:]", "x[1m:]", id="a subquery with the default step"),
        pytest.param("x offset 6d23h50m", "x offset 2h47m50s", id="an offset"),
        pytest.param("x offset -5m", "x offset -5s", id="an offset forwards"),
        pytest.param("x[1ms]", "x[1ms]", id="never below a millisecond"),
        pytest.param('x{a="[5m] 5m"}', 'x{a="[5m] 5m"}', id="strings stay"),
        pytest.param(r'x{a="\"5m"} > 5', r'x{a="\"5m"} > 5', id="strings with quotes in them stay"),
        pytest.param("x{a='5m', b=`5m`}", "x{a='5m', b=`5m`}", id="other quotes stay"),
        pytest.param("x # over 5m\n", "x # over 5m\n", id="comments stay"),
        pytest.param("x5m:y5m_5m", "x5m:y5m_5m", id="names stay"),
        pytest.param("x > 1e5 + 0x5d + .5", "x > 1e5 + 0x5d + .5", id="numbers stay"),
        pytest.param("increase(x[1h])", "increase(x[1m])", id="an increase is what it was"),
        pytest.param("rate(x[5m])", "(rate(x[5s]) / 60)", id="a rate is per fast second"),
        pytest.param(
            "histogram_quantile(0.95, sum by (le) (rate(x[5m])))",
            "histogram_quantile(0.95, sum by (le) ((rate(x[5s]) / 60)))",
            id="a rate within",
        ),
        pytest.param("sum by (rate) (x)", "sum by (rate) (x)", id="a label called rate"),
        pytest.param("predict_linear(x[20m], 600)", "predict_linear(x[20s], 10)", id="seconds ahead"),
        pytest.param(
            'predict_linear(x{a="b",c="d"}[20m],600)',
            'predict_linear(x{a="b",c="d"}[20s], 10)',
            id="commas in a selector",
        ),
        pytest.param(
            "predict_linear(x[20m], 4 * 60)", "predict_linear(x[20s], (4 * 60) / 60)", id="seconds computed"
        ),
        pytest.param(
            "predict_linear(max_over_time(x[5m])[20m:1m], 600)",
            "predict_linear(max_over_time(x[5s])[20s:1s], 10)",
            id="nested calls",
        ),
    ],
)
def test_expressions_at_sixty_times_speed(expr: str, expected: str) -> None:
    """Durations shrink, and nothing that only looks like one does."""
    assert promql.compress(expr, 60) == expected


@given(duration=durations, factor=factors)
def test_a_compressed_duration_is_legal_and_right_to_the_millisecond(duration: str, factor: float) -> None:
    """For any duration and factor."""
    result = promql.compress_duration(duration, factor)
    assert promql.is_duration(result)
    assert promql.duration_ms(result) == max(1, round(promql.duration_ms(duration) / factor))


@given(milliseconds=st.integers(1, 10**12))
def test_formatting_a_duration_loses_nothing(milliseconds: int) -> None:
    """Formatted and read again, it is the same."""
    assert promql.duration_ms(promql.format_duration(milliseconds)) == milliseconds


@given(expr=st.text(alphabet=st.sampled_from("abr5ms d()[]{}\"'`,.:#=~\\\n0x")))
def test_tokens_joined_are_the_expression(expr: str) -> None:
    """The tokenizer drops nothing, whatever it is given."""
    assert "".join(token.text for token in promql.tokenize(expr)) == expr


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=st.lists(durations, min_size=20, max_size=40), factor=factors)
def test_promtool_takes_every_compressed_duration(drawn: list[str], factor: float) -> None:
    """In ranges, subqueries, offsets, `for` and intervals."""
    entries = "".join(
        f"  - {{alert: A{n}, for: {d}, expr: 'rate(max_over_time(x[{d}])[{d}:{d}] offset {d}) > 0'}}\n"
        for n, d in enumerate(drawn)
    )
    text = f"groups:\n- name: g\n  interval: {drawn[0]}\n  rules:\n{entries}"
    exported = rules.export(rules.compress(rules.load_text(text, "f.yaml"), factor))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "r.yml").write_text(exported)
        command = ["promtool", "check", "rules", "r.yml"]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_factor_one_changes_nothing() -> None:
    """The shipped pack at its own speed is the shipped pack."""
    groups = rules.load([PACK])
    assert rules.compress(groups, 1) == groups


def test_group_and_rule_durations_shrink_and_texts_stay() -> None:
    """interval, query_offset, for and keep_firing_for; labels and annotations are left alone; 0 stays 0."""
    text = (
        "groups: [{name: g, interval: 30s, query_offset: 1m, rules: [{alert: A, expr: x, for: 3m,"
        " keep_firing_for: 2m, labels: {l: 5m}, annotations: {a: over 5m}}, {alert: B, expr: x, for: 0s}]}]"
    )
    (group,) = rules.compress(rules.load_text(text, "f.yaml"), 60)
    first, second = group.rules
    assert (group.interval, group.options["query_offset"]) == ("500ms", "1s")
    assert (first.for_, first.keep_firing_for, second.for_) == ("3s", "2s", "0s")
    assert (dict(first.labels), dict(first.annotations)) == ({"l": "5m"}, {"a": "over 5m"})


@pytest.mark.parametrize("factor", [0, -1, float("inf"), float("nan")])
def test_a_senseless_factor_is_refused(factor: float) -> None:
    """Time neither stops nor runs backwards."""
    with pytest.raises(ValueError, match="positive number"):
        rules.compress((), factor)


@pytest.mark.parametrize("expr", ["rate(x[5m]", "x)"])
def test_parentheses_that_do_not_pair_are_named(expr: str) -> None:
    """With file, line and rule."""
    groups = rules.load_text(f"groups: [{{name: g, rules: [{{alert: A, expr: '{expr}'}}]}}]", "f.yaml")
    with pytest.raises(rules.RuleFileError, match=r"f\.yaml, line 1: rule 'A': in `expr` a `[()]` has no"):
        rules.compress(groups, 60)
