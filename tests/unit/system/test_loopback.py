import contextlib
import http.client
import socket
import threading

import pytest

from tracelab.base.errors import UnreadableInputError, UsageError
from tracelab.system import loopback
from tracelab.system.loopback import (
    Content,
    LoopbackServer,
    content_of_bytes,
    content_of_file,
)

PAGE = content_of_bytes(b"<p>page", "text/html")
HANGS_S = 300  # only ends what hangs


@contextlib.contextmanager
def serving(contents, port=0):
    with LoopbackServer(port) as server:
        thread = threading.Thread(target=server.serve, args=(contents,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server, path, method="GET", **headers):
    """Status, headers and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANGS_S)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def ask_raw(server, request):
    """All that comes back for these bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=HANGS_S) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def get(server):
    return f"GET /{server.token}/ HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def test_a_connection_that_says_nothing_is_closed(monkeypatch, capsys):
    monkeypatch.setattr(loopback._Handler, "timeout", 0.1)
    with serving({"": PAGE}) as server:
        assert ask_raw(server, b"") == ask_raw(server, get(server)[:-2]) == b""
        assert ask(server, f"/{server.token}/")[0] == 200
    assert capsys.readouterr().err == ""


def test_a_request_that_takes_long_is_dropped_though_it_is_never_silent(monkeypatch, capsys):
    monkeypatch.setattr(loopback, "MAX_SILENCE_S", 0.3)
    with serving({"": PAGE}) as server:
        address, sent = ("127.0.0.1", server.port), b"GET /"
        with socket.create_connection(address, timeout=0.02) as connection:
            with contextlib.suppress(ConnectionError):
                while len(sent) < 10_000:
                    connection.sendall(sent[-1:])
                    sent += b"a"
                    with contextlib.suppress(TimeoutError):
                        connection.recv(1)
                        break
            assert 10 < len(sent) < 10_000
        assert ask(server, f"/{server.token}/")[0] == 200
    assert capsys.readouterr().err == ""


def test_connections_that_are_too_many_are_closed(monkeypatch):
    monkeypatch.setattr(loopback, "MAX_CONNECTIONS", 2)
    with serving({"": PAGE}) as server, contextlib.ExitStack() as stack:
        address = ("127.0.0.1", server.port)
        waiting = [
            stack.enter_context(socket.create_connection(address, HANGS_S)) for _ in range(2)
        ]
        assert ask_raw(server, b"") == b""
        for connection in waiting:
            connection.sendall(get(server))
            assert b"200" in b"".join(iter(lambda: connection.recv(65536), b""))  # noqa: B023
        # A thread makes room just after it has answered.
        while not server._free.acquire(timeout=0.1):
            pass
        server._free.release()
        assert ask(server, f"/{server.token}/")[0] == 200


def test_contents_are_served_by_name_under_the_token():
    with serving({"": PAGE, "a b": content_of_bytes(b"{}", "application/json")}) as server:
        assert server.url == f"http://127.0.0.1:{server.port}/{server.token}/"
        assert len(server.token) >= 40
        status, headers, body = ask(server, f"/{server.token}/")
        assert (status, body) == (200, b"<p>page")
        assert headers["Content-Type"] == "text/html"
        assert headers["Content-Length"] == "7"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Server"].strip() == "tracelab"
        # A page with this header would lose the window that it opens, and Perfetto with it.
        assert "Cross-Origin-Opener-Policy" not in headers
        assert "Access-Control-Allow-Origin" not in headers
        assert ask(server, f"/{server.token}/?theme=dark")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/TOKEN",
        "/TOKEN/other",
        "/TOKEN/..",
        "/TOKEN//",
        "/tokem/",
        "/%2e%2e/",
        "/\xe9\xff/",
        "http://127.0.0.1/TOKEN/",
    ],
)
def test_nothing_else_is_there(path):
    with serving({"": PAGE}) as server:
        path = path.replace("TOKEN", server.token)
        answer = ask_raw(server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode("latin1"))
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert answer.endswith(b"\r\n\r\n404\n")


def test_tokens_differ():
    with LoopbackServer() as one, LoopbackServer() as other:
        assert one.token != other.token


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8000", "LOCALHOST", "[::1]:9000"])
def test_this_machine_may_be_named_in_any_way(host):
    with serving({"": PAGE}) as server:
        assert ask(server, f"/{server.token}/", Host=host)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil:80", "", "0.0.0.0", "[::1]x"]
)
def test_other_names_that_lead_here_find_nothing(host):
    with serving({"": PAGE}) as server:
        assert ask(server, f"/{server.token}/", Host=host)[0] == 404


def test_a_request_names_one_host():
    with serving({"": PAGE}) as server:
        path = f"/{server.token}/"
        assert ask_raw(server, f"GET {path} HTTP/1.0\r\n\r\n".encode()).startswith(b"HTTP/1.1 404")
        twice = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"
        assert ask_raw(server, twice.encode()).startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE"])
def test_nothing_can_be_done_but_reading(method):
    with serving({"": PAGE}) as server:
        status, _, body = ask(server, f"/{server.token}/", method)
        assert (status, body) == (501, b"501\n")


def test_head_has_the_headers_alone():
    content = Content("text/plain", lambda: pytest.fail("it was read"), 5)
    with serving({"": content}) as server:
        status, headers, body = ask(server, f"/{server.token}/", "HEAD")
        assert (status, headers["Content-Length"], body) == (200, "5", b"")
        status, _, body = ask(server, "/", "HEAD")
        assert (status, body) == (404, b"")


def test_a_file_is_read_in_pieces_for_each_request(tmp_path):
    path = tmp_path / "trace"
    path.write_bytes(bytes(range(256)) * 10_000)
    content = content_of_file(path, "application/octet-stream")
    assert max(map(len, content.chunks())) == 1 << 20
    with serving({"trace": content}) as server:
        for _ in range(2):
            _, headers, body = ask(server, f"/{server.token}/trace")
            assert headers["Content-Length"] == "2560000"
            assert body == path.read_bytes()


def test_content_of_unknown_length_has_a_marked_end():
    def chunks():
        yield from (b"one", b"", b"two")

    with serving({"": Content("text/plain", chunks)}) as server:
        _, headers, body = ask(server, f"/{server.token}/")
        assert (headers["Transfer-Encoding"], body) == ("chunked", b"onetwo")
        assert "Content-Length" not in headers


def test_what_breaks_off_is_not_taken_for_whole(capsys, snapshot):
    def chunks():
        yield b"one"
        raise UnreadableInputError("Step.json: the file was removed")

    with serving({"": Content("text/plain", chunks)}) as server:
        answer = ask_raw(server, get(server))  # until the server closes it, which is the last
    assert answer.endswith(b"\r\n\r\n3\r\none\r\n")  # and no chunk of 0 bytes, the end
    assert capsys.readouterr().err == snapshot


def test_what_cannot_be_read_is_an_error_of_the_server(tmp_path, capsys):
    path = tmp_path / "trace"
    path.write_bytes(b"[]")
    content = content_of_file(path, "text/plain")
    path.unlink()
    with serving({"": content, "page": PAGE}) as server:
        assert ask_raw(server, get(server)).startswith(b"HTTP/1.1 500 ")
        assert ask(server, f"/{server.token}/page")[0] == 200
    assert capsys.readouterr().err == "tracelab: no such file or directory\n"


def test_a_browser_may_leave(capsys):
    is_left = threading.Event()

    def chunks():
        yield b"x"
        is_left.wait()
        while True:
            yield b"x" * 100_000

    with serving({"": Content("text/plain", chunks)}) as server:
        connection = socket.create_connection(("127.0.0.1", server.port))
        connection.sendall(get(server))
        connection.recv(10)
        connection.close()
        is_left.set()
        assert ask(server, "/")[0] == 404
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("what", [b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"\xff"])
def test_what_is_no_request_does_no_harm(what, capsys):
    with serving({"": PAGE}) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=HANGS_S) as connection:
            connection.sendall(what)
            connection.shutdown(socket.SHUT_WR)
            assert b"200" not in b"".join(iter(lambda: connection.recv(65536), b""))
        assert ask(server, f"/{server.token}/")[0] == 200
    assert capsys.readouterr().err == ""


def test_a_port_may_be_asked_for():
    with LoopbackServer() as first:
        with pytest.raises(UsageError, match=rf"cannot listen on port {first.port}: address"):
            LoopbackServer(first.port)
        port = first.port
    with serving({"": PAGE}, port) as server:
        assert server.url.startswith(f"http://127.0.0.1:{port}/")
        assert ask(server, f"/{server.token}/")[0] == 200
    with pytest.raises(UsageError, match="cannot listen on port 70000: "):
        LoopbackServer(70_000)
