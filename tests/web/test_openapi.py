"""The description of the API: true to the routes, to the roles, and to every answer that can be provoked."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from responder.model import Commit, Failure, HistoryEntry, Intent, Outcome, Override, OverrideKind, Reason
from responder.web.openapi import OPERATIONS, Operation, description
from tests.web.people import OTHER, TRITON, VLLM, Api, api, in_seconds

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
NOW = datetime.now(UTC)
WEBHOOK = "/api/v1/webhooks/alertmanager"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """An application that knows a target in each state there is, and people's words on it."""
    with api(tmp_path_factory.mktemp("served")) as made:
        intent = Intent("i1", "u", 2, 3, "100", 1, "kubectl", NOW, Reason.SCALED_UP, "")
        override = Override(
            "o", OverrideKind.PIN, "ana", "c", NOW, NOW, NOW + timedelta(hours=1), VLLM.key, replicas=3
        )
        made.know(VLLM, intent=intent, replicas=2, ready=2, annotated=(override,), foreign_at=NOW)
        made.know(TRITON, failure=Failure(Reason.FORBIDDEN, "m", NOW, NOW))
        made.know(OTHER)
        line = HistoryEntry(NOW, VLLM.key, 2, 3, Reason.SCALED_UP, "m")
        made.store.commit(
            Commit(history=(line, replace(line, outcome=Outcome.APPLIED, alert_started_at=NOW)))
        )
        made.store.put_override(override)
        yield made


def names(path: str) -> str:
    """A route of Flask as OpenAPI writes it."""
    return re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", path)


class TestTrueToTheCode:
    def test_describes_every_route_and_no_other(self, served: Api) -> None:
        """A route that somebody adds has to be described, and one that goes goes from here too."""
        routes = {
            (method.lower(), names(rule.rule))
            for rule in served.app.url_map.iter_rules()
            for method in rule.methods - {"HEAD", "OPTIONS"}
            if rule.rule.startswith(("/api/", "/-/", "/metrics"))
        }
        described = {(each.method, each.path) for each in OPERATIONS}
        assert described == routes | {("post", WEBHOOK)}
        assert len(OPERATIONS) == len(described)

    def test_says_the_role_that_each_route_needs(self, served: Api) -> None:
        """As the view is marked."""
        roles = {
            (method.lower(), names(rule.rule)): served.app.view_functions[rule.endpoint].role
            for rule in served.app.url_map.iter_rules()
            for method in rule.methods - {"HEAD", "OPTIONS"}
        }
        for each in OPERATIONS:
            assert each.role == roles.get((each.method, each.path), each.role), each.path

    def test_is_valid_and_served(self, served: Api) -> None:
        """Every reference leads somewhere, every schema is one; open to all."""
        answer = served.get("/api/v1/openapi.json", token="")
        assert answer.status_code == 200
        document = answer.json
        assert document == json.loads(json.dumps(description()))
        for name, schema in document["components"]["schemas"].items():
            jsonschema.Draft202012Validator.check_schema(schema)
            assert name
        references = re.findall(r'"#/components/schemas/(\w+)"', answer.text)
        assert set(references) <= set(document["components"]["schemas"])
        assert {"Target", "NewOverride", "WebhookAlert"} <= set(references)


def closed(schema: Any) -> Any:
    """The schema with every object closed: what is not described is a fault."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if made.get("type") == "object" and "properties" in made and "additionalProperties" not in made:
        made["additionalProperties"] = False
    return made


class TestAnswers:
    @pytest.mark.parametrize(
        ("method", "path", "described", "body", "status"),
        [
            ("GET", "/api/v1/targets", "/api/v1/targets", None, 200),
            ("GET", f"/api/v1/targets/{VLLM.key}", "/api/v1/targets/{namespace}/{kind}/{name}", None, 200),
            ("GET", "/api/v1/targets/inference/deployment/vlm", "/api/v1/targets/{namespace}/{kind}/{name}", None, 404),
            ("GET", "/api/v1/decisions?inputs=true", "/api/v1/decisions", None, 200),
            ("GET", "/api/v1/overrides", "/api/v1/overrides", None, 200),
            ("POST", "/api/v1/overrides", "/api/v1/overrides",
             {"kind": "pause", "target": "vllm", "comment": "c", "durationSeconds": 60}, 201),
            ("GET", "/api/v1/overrides/o", "/api/v1/overrides/{identifier}", None, 200),
            ("GET", "/api/v1/audit", "/api/v1/audit", None, 200),
            ("POST", "/api/v2/silences", "/api/v2/silences",
             {"matchers": [{"name": "alertname", "value": "Busy", "isRegex": False}], "startsAt": in_seconds(0),
              "endsAt": in_seconds(900), "createdBy": "ana", "comment": "c"}, 200),
            ("GET", "/api/v2/silences", "/api/v2/silences", None, 200),
            ("GET", "/api/v2/status", "/api/v2/status", None, 200),
            ("GET", "/api/v2/alerts", "/api/v2/alerts", None, 200),
            ("GET", "/-/ready", "/-/ready", None, 200),
            ("POST", "/-/reload", "/-/reload", {}, 200),
        ],
    )  # fmt: skip
    def test_hold_what_is_described_and_no_more(
        self, served: Api, method: str, path: str, described: str, body: Any, status: int
    ) -> None:
        """Full answers against schemas that are closed: a key that is added has to be described."""
        answer = served.call(method, path, body)
        assert answer.status_code == status
        document = closed(deepcopy(description()))
        given = document["paths"][described][method.lower()]["responses"][str(status)]
        schema = {**given["content"]["application/json"]["schema"], "components": document["components"]}
        jsonschema.Draft202012Validator(schema).validate(answer.json)

    @pytest.mark.parametrize(
        "trouble", ["a wrong token", "a token that may not", "another host", "a store that is closed"]
    )
    def test_to_troubles_are_described(self, trouble: str, tmp_path: Path) -> None:
        """Every operation says that it may be refused, and that the store may not be had."""
        with api(tmp_path, *([{"name": "x", "role": "viewer"}] if "token" in trouble else [])) as made:
            token = {"a wrong token": "wrong", "a token that may not": "alertmanager"}.get(trouble, "")
            if "store" in trouble:
                made.store.close()
            statuses = set()
            for each in OPERATIONS:
                body = {} if each.method == "post" else None
                host = "evil.example" if "host" in trouble else "localhost"
                path = re.sub(r"{\w+}", "x", each.path)
                answer = made.call(each.method.upper(), path, body, token=token, Host=host)
                described = description()["paths"][each.path][each.method]["responses"]
                assert str(answer.status_code) in described, (each.path, answer.status_code)
                statuses.add(answer.status_code)
        expected = {"a wrong token": 401, "a token that may not": 403, "another host": 403}.get(trouble, 503)
        assert expected in statuses


@pytest.fixture(scope="module")
def schema(served: Api) -> Any:
    return schemathesis.openapi.from_wsgi("/api/v1/openapi.json", served.app)


RIGHT, WRONG = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
SENT = [
    pytest.param(each, mode, id=f"{each.method} {each.path}, {mode.value}")
    for each in OPERATIONS
    for mode in (RIGHT, WRONG)
    # Where nothing is asked for, nothing can be wrong.
    if mode is RIGHT or each.role or each.parameters
]


@pytest.mark.parametrize(("operation", "mode"), SENT)
def test_whatever_is_sent_has_a_described_answer(
    schema: Any, operation: Operation, mode: schemathesis.GenerationMode
) -> None:
    """Requests made from the description, right ones and wrong ones: never a 500, nothing undescribed."""
    # A payload of the webhook takes long to make, and test_intake makes many more.
    count = 3 if operation.path == WEBHOOK else 20

    @settings(
        max_examples=count, derandomize=True, phases=[Phase.generate], deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=schema[operation.path][operation.method].as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        case.call_and_validate(checks=CHECKS)

    send()
