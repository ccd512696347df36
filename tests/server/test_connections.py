"""What a client may do below HTTP: offer other protocols, send endless headers, read nothing."""

import http.client
import json
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bne.server.connections import LONGEST
from tests.server.servers import listening

Runs = dict[str, Path]
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"


@pytest.fixture(scope="module")
def address(runs: Runs):
    with listening(runs["bne"]) as found:
        yield found


def connect(address: str) -> socket.socket:
    place = urlsplit(address)
    found = socket.create_connection((place.hostname, place.port), timeout=20)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def answer(sent_by: socket.socket) -> http.client.HTTPResponse:
    found = http.client.HTTPResponse(sent_by)
    found.begin()
    found.said = found.read()
    return found


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("apart", [True, False])
def test_an_offer_of_http2_loses_no_image(
    address: str, runs: Runs, chunked: bool, apart: bool
) -> None:
    picture = next(runs["data"].glob("photo/cat/*.png")).read_bytes()
    length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(picture)
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(picture), picture) if chunked else picture
    header = b"POST /predict HTTP/1.1\r\nHost: x\r\n" + OFFER + length + b"\r\n\r\n"
    with connect(address) as client:
        for _ in range(2):  # the connection serves for another request
            for part in (header[:50], header[50:], body) if apart else (header + body,):
                client.sendall(part)
            found = answer(client)
            assert (found.status, found.said.count(b'"name":"image"')) == (200, 1)
        client.sendall((b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + OFFER + b"\r\n") * 2)
        heard = b""
        while heard.count(b"alive") < 2:
            heard += client.recv(1000) or pytest.fail(f"{heard!r} has not two answers")


@pytest.mark.parametrize("request_", [b"CONNECT x:80 HTTP/1.1\r\n\r\n", b"\x16\x03\x01\r\n\r\n"])
def test_what_is_no_plain_http_is_a_400(address: str, request_: bytes) -> None:
    with connect(address) as client:
        client.sendall(request_)
        told = answer(client)
        said = json.loads(told.said)
        assert (told.status, set(said)) == (400, {"model", "detail"})
        assert said["model"] == told.headers["X-Model-Id"]
        assert client.recv(1) == b""


def test_a_body_that_is_announced_too_long_is_not_waited_for(address: str) -> None:
    with connect(address) as client:
        client.sendall(b"POST /predict HTTP/1.1\r\nContent-Length: 32000001\r\n\r\n")
        assert answer(client).status == 413
        assert client.recv(1) == b""


@pytest.mark.parametrize(
    "start",
    [
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ",
        b"POST /predict HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: ",
    ],
)
def test_a_header_without_end_is_cut_off(address: str, start: bytes) -> None:
    with connect(address) as client, pytest.raises(ConnectionError):
        client.sendall(start + b"a" * 100 * LONGEST)
    with connect(address) as client:
        client.sendall(start + b"a" * (LONGEST - 200))
        client.sendall(b"\r\n\r\n")
        assert answer(client).status in (200, 422)


def test_a_header_that_is_too_long_is_a_400_however_fast_it_comes(address: str) -> None:
    with connect(address) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nX: " + b"a" * LONGEST + b"\r\n\r\n")
        assert answer(client).status == 400
        assert client.recv(1) == b""


def test_head_is_answered_without_a_body(address: str) -> None:
    with connect(address) as client:
        client.sendall(b"HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        heard = b""
        while more := client.recv(1000):
            heard += more
        assert heard.startswith(b"HTTP/1.1 200 ")
        assert heard.endswith(b"\r\n\r\n")


def test_a_header_that_does_not_come_ends_the_connection(runs: Runs) -> None:
    whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with listening(runs["bne"], seconds=0.3) as address:
        for sent in (b"", whole[:9], whole[:-2]):
            with connect(address) as client:
                client.sendall(sent)
                assert client.recv(1) == b""
        with connect(address) as client:
            client.sendall(whole + whole[:-2])
            assert answer(client).status == 200
            assert client.recv(1) == b""


def test_a_client_that_reads_nothing_does_not_keep_the_server_from_stopping(runs: Runs) -> None:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    patience = threading.Timer(60, client.close)  # this would let it stop
    with listening(runs["bne"], seconds=0.2) as address:
        place = urlsplit(address)
        client.connect((place.hostname, place.port))
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 500)
        with connect(address) as other:
            other.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert answer(other).status == 200
        patience.start()
    assert patience.is_alive()
    patience.cancel()
    client.close()
