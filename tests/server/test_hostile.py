"""What nobody should send: requests made up from the schema, and damaged images."""

import importlib
import sys
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.docs.pages import ROOT
from tests.server.servers import listening

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]


@pytest.fixture(scope="module")
def address(runs: dict[str, Path]):
    with listening(runs["bne"], body=100_000, images=4) as found:
        yield found


@pytest.fixture(scope="module")
def ask(address: str):
    with httpx.Client(base_url=address) as found:
        yield found


def test_requests_made_up_from_the_schema(address: str) -> None:
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    operations = [one.ok() for one in schema.get_all_operations()]
    assert {one.path for one in operations} == {
        "/predict",
        "/domains",
        "/healthz",
        "/readyz",
        "/metrics",
    }
    codes = set()
    modes = schemathesis.GenerationMode
    for operation in operations:
        count = 60 if operation.path == "/predict" else 5
        for mode in (modes.POSITIVE, modes.NEGATIVE) if count > 5 else (modes.POSITIVE,):

            @settings(
                max_examples=count,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def check(case) -> None:
                answer = case.call()
                codes.add(answer.status_code)
                assert answer.headers["x-model-id"]
                case.validate_response(answer, checks=CHECKS)

            check()
    assert codes <= {200, 413, 422}
    assert {200, 422} <= codes


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_damaged_images(ask: httpx.Client) -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        damaged = importlib.import_module("serve").damaged
    finally:
        sys.path.pop(0)
    codes = {200: 0, 422: 0}
    for data in damaged(300):
        told = ask.post("/predict", content=data)
        codes[told.status_code] += 1
        if told.status_code == 422:
            assert "image" in told.json()["detail"]
    assert min(codes.values()) > 30  # some damage does not matter


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(body=st.binary(max_size=400), boundary=st.sampled_from(["a", "", "a" * 500, '"']))
def test_damaged_forms(ask: httpx.Client, body: bytes, boundary: str) -> None:
    start = b'--a\r\nContent-Disposition: form-data; name="i"; filename="x"\r\n\r\n'
    kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    for content in (body, start + body, start + body + b"\r\n--a--\r\n"):
        assert ask.post("/predict", content=content, headers=kind).status_code == 422
