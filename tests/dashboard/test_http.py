"""The dashboard's server against a running session, without a browser."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from dashboard_site import Site, eventually, server_process

import weft
from waiting import wait_until
from weft.dashboard import arrivals
from weft.dashboard.requests import make_handler
from weft.dashboard.server import MOST_STRANGERS, MOST_THREADS, Server, hang_up
from weft.util import board
from weft.util.metrics import Counter, Gauge, Histogram

STATIC_PATHS = ("/", "/index.html", "/app.js", "/style.css", "/icon.svg", "/vendor/echarts.min.js", "/pages/stream.js")
LISTINGS = ("tasks", "objects", "workers", "actors", "jobs", "placement_groups", "stacks")
API_PATHS = (
    "cluster",
    "stream",
    "graph",
    "graph?by=task",
    "ended",
    "runs",
    "errors",
    "logs",
    "boards",
    *(f"rows/{what}" for what in LISTINGS),
)
WRONG = ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "weft_dashboard=wrong"}, {"Cookie": "\x01="})
ELSEWHERE = ("/../server.py", "/%2e%2e/server.py", "/..%2fserver.py", "/vendor/../../server.py", "/nothing")
NONSENSE = (("rows/nothing", 404), ("x", 404), ("logs?limit=x", 400), ("task?id=00", 404), ("flame?pid=1", 404))


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    weft.init(num_cpus=2, log_to_driver=False)
    try:
        url = weft.init(ignore_reinit_error=True).dashboard_url
        assert url is not None
        yield Site(url)
    finally:
        weft.shutdown()


@weft.remote
def work(text: str) -> str:
    print(text)
    return text


@weft.remote
def opens(path: str) -> None:
    with open(path):
        pass


@weft.remote
def fails(text: str) -> None:
    raise ValueError(text)


@pytest.mark.parametrize(
    "path", [*STATIC_PATHS, *(f"/api/{path}" for path in API_PATHS), "/metrics", "/nothing", "/api/x"]
)
def test_every_path_wants_the_token(site: Site, path: str) -> None:
    for headers in WRONG:
        for method in ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "BREW"):
            answer, _ = site.ask(path, method, **headers)
            assert answer.status == 401, (method, headers)


def test_the_token_in_the_address_becomes_a_cookie_that_opens_all(site: Site) -> None:
    answer, _ = site.ask(f"/?token={site.token}")
    assert (answer.status, answer.getheader("Location")) == (303, "/")
    cookie = answer.getheader("Set-Cookie", "")
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert site.ask("/", Cookie=cookie.split(";")[0])[0].status == 200
    assert site.ask(f"/api/cluster?token={site.token}")[0].status == 401


def slow_strangers(site: Site, count: int) -> list[socket.socket]:
    """Each has sent the beginning of a head, and will never end it."""
    host, _, port = site.host.rpartition(":")
    made = [socket.create_connection((host, int(port)), 20) for _ in range(count)]
    for stranger in made:
        stranger.sendall(b"GET / HTTP/1.1\r\nX: ")
    return made


def test_strangers_that_never_end_their_request_keep_nobody_waiting(site: Site) -> None:
    site.get("/metrics")
    strangers = slow_strangers(site, MOST_THREADS + arrivals.MOST)
    try:
        for _ in range(3):
            site.get("/metrics")
            for stranger in strangers[-40:]:
                stranger.sendall(b"x")
        with contextlib.suppress(ConnectionResetError):  # what it had sent may not have been read
            assert strangers[0].recv(1) == b"", "it was pushed out"
    finally:
        for stranger in strangers:
            stranger.close()


def test_strangers_that_ask_in_full_keep_nobody_with_the_token_waiting() -> None:
    """Their answers take for ever here; whoever has the token is answered, and the crowd is bounded."""
    may_go_on, over = threading.Event(), threading.Event()

    class Slow(make_handler(SimpleNamespace(metrics=lambda: "fine"), "right")):  # type: ignore[misc]
        def _send_401(self) -> None:
            may_go_on.wait()
            super()._send_401()

    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener, contextlib.ExitStack() as crowd:
        server = Server(listener, Slow)

        def serve() -> None:
            while not over.is_set():
                server._arrivals.run_once(0.01)

        thread = threading.Thread(target=serve)
        thread.start()

        def ask(*lines: str) -> socket.socket:
            connection = crowd.enter_context(socket.create_connection(listener.getsockname(), 20))
            connection.sendall("\r\n".join(["GET /metrics HTTP/1.1", "Host: localhost", *lines, "", ""]).encode())
            return connection

        strangers = [ask(f"Authorization: Bearer wrong{n}", f"X: {'y' * 9000}") for n in range(MOST_STRANGERS + 10)]
        assert ask("authorization: bearer right").recv(15) == b"HTTP/1.1 200 OK"
        assert ask("cookie: a=b; weft_dashboard=right").recv(15) == b"HTTP/1.1 200 OK"
        with contextlib.suppress(ConnectionResetError):
            assert strangers[-1].recv(15) == b"", "it was hung up on"
        may_go_on.set()
        assert strangers[0].recv(12) == b"HTTP/1.1 401"
        over.set()
        thread.join()
        for pool in (server._threads, server._for_strangers):
            pool.shutdown()
        server._arrivals.close()


def test_strangers_leave_half_of_the_descriptors_to_who_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals.resource, "getrlimit", lambda _: (16, 16))
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener, contextlib.ExitStack() as crowd:
        waiting = arrivals.Arrivals(listener, lambda arrival, head: None)
        for _ in range(12):
            crowd.enter_context(socket.create_connection(listener.getsockname(), 20))
            waiting.run_once(20)
        assert len(waiting) == 8
        waiting.close()


def test_who_sends_without_end_is_hung_up_on() -> None:
    class Endless:
        reads, is_closed = 0, False

        def recv(self, _: int) -> bytes:
            self.reads += 1
            assert self.reads < 10_000, "a thread would read for as long as he likes"
            return b"x"

        def close(self) -> None:
            self.is_closed = True

        def settimeout(self, _: float) -> None: ...
        def shutdown(self, _: int) -> None: ...

    stranger = Endless()
    hang_up(stranger)  # type: ignore[arg-type]
    assert stranger.is_closed


def test_a_head_takes_no_longer_than_its_time_however_its_bytes_drip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "HEAD_S", 0.1)
    asked: list[arrivals.Arrival] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        waiting = arrivals.Arrivals(listener, lambda arrival, _: asked.append(arrival))
        with socket.create_connection(listener.getsockname()) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\nX: ")
            wait_until(lambda: waiting.run_once(0.01) or len(waiting) == 1)

            def drip() -> bool:
                with contextlib.suppress(ConnectionError):
                    stranger.sendall(b"x")
                waiting.run_once(0.01)
                return len(waiting) == 0

            wait_until(drip)
        waiting.close()
    assert asked == []


def test_connections_that_were_given_back_are_closed_with_the_others() -> None:
    asked: list[arrivals.Arrival] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        waiting = arrivals.Arrivals(listener, lambda arrival, _: asked.append(arrival))
        with socket.create_connection(listener.getsockname(), 20) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            wait_until(lambda: waiting.run_once(0.01) or asked)
            waiting.give_back(asked[0])
            waiting.close()
            assert asked[0].connection.fileno() == -1


def raw(site: Site, *lines: str) -> bytes:
    host, _, port = site.host.rpartition(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        answer = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(1 << 16):
                answer += part
        return answer


def test_a_request_without_a_host_or_with_two_is_refused(site: Site) -> None:
    bearer = f"Authorization: Bearer {site.token}"
    assert raw(site, "GET /metrics HTTP/1.1", bearer).startswith(b"HTTP/1.1 400")
    assert raw(site, "GET /metrics HTTP/1.1", "Host: a", "Host: b", bearer).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "line",
    ["no colon", "Name : 5", " folded: 5", "X: a\rContent-Length: 5", "X: a\0b", "X: a\nContent-Length: 5", ": 5"],
)
def test_a_head_that_a_proxy_may_read_in_another_way_is_refused(site: Site, line: str) -> None:
    bearer = f"Authorization: Bearer {site.token}"
    answer = raw(
        site, "GET /metrics HTTP/1.1", "Host: localhost", line, bearer, "", "GET /x HTTP/1.1", "Host: a", bearer
    )
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1


def test_what_follows_a_request_with_two_lengths_is_not_read(site: Site) -> None:
    bearer, lengths = f"Authorization: Bearer {site.token}", ("Content-Length: 0", "Content-Length: 40")
    answer = raw(site, "GET /metrics HTTP/1.1", "Host: localhost", bearer, *lengths, "", "GET /x HTTP/1.1", "Host: a")
    assert answer.count(b"HTTP/1.1") == 1


def test_a_head_that_is_too_large_is_refused(site: Site) -> None:
    answer = raw(site, "GET /metrics HTTP/1.1", f"X: {'y' * 70_000}", f"Authorization: Bearer {site.token}")
    assert answer.startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize(
    "path",
    ["/api/logs?limit=" + "9" * 24, "/api/rows/tasks?limit=" + "9" * 5000, "/api/logs?limit=\u00b2"],
)
def test_an_address_that_makes_no_sense_is_answered(site: Site, path: str) -> None:
    answer, _ = site.ask(urllib.parse.quote(path, safe=":/?=["), Authorization=f"Bearer {site.token}")
    assert answer.status == 400


def test_an_address_that_is_none_is_answered(site: Site) -> None:
    bearer = f"Authorization: Bearer {site.token}"
    assert raw(site, "GET http://[/x HTTP/1.1", "Host: a", bearer).startswith(b"HTTP/1.1 400")


def test_a_browser_that_was_led_here_under_another_name_is_shown_nothing(site: Site) -> None:
    """The attacker's page has a name that leads to this machine by now."""
    cookie = {"Cookie": f"weft_dashboard={site.token}"}
    assert site.ask("/", Host="attacker.example:8265", **cookie)[0].status == 401
    answer, _ = site.ask(f"/?token={site.token}", Host="attacker.example")
    assert answer.status == 421 and answer.getheader("Set-Cookie") is None
    for host in ("localhost:1", "127.0.0.1", "[::1]:8265", socket.gethostname()):
        assert site.ask("/", Host=host, **cookie)[0].status == 200, host
    assert site.ask("/", Host="scraped.example", Authorization=f"Bearer {site.token}")[0].status == 200


def test_a_connection_is_used_for_many_requests_and_an_answer_is_not_held_up(site: Site) -> None:
    connection = http.client.HTTPConnection(site.host, timeout=60)
    for _ in range(5):
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {site.token}"})
        answer = connection.getresponse()
        assert answer.status == 200 and answer.read() and not answer.will_close
    connection.close()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(site: Site, method: str) -> None:
    answer, body = site.ask("/api/cluster", method, Authorization=f"Bearer {site.token}")
    assert (answer.status, answer.getheader("Allow")) == (405, "GET, HEAD") and b"only reads" in body


@pytest.mark.parametrize("path", STATIC_PATHS)
def test_files_come_from_the_package_under_a_strict_policy(site: Site, path: str) -> None:
    answer, body = site.ask(path, Authorization=f"Bearer {site.token}")
    assert answer.status == 200 and body
    assert "script-src 'self';" in answer.getheader("Content-Security-Policy", "")
    assert answer.getheader("X-Content-Type-Options") == "nosniff"


@pytest.mark.parametrize("path", ELSEWHERE)
def test_no_other_file_can_be_read(site: Site, path: str) -> None:
    assert site.ask(path, Authorization=f"Bearer {site.token}")[0].status == 404


def test_pages_ask_for_nothing_from_elsewhere(site: Site) -> None:
    for path in STATIC_PATHS:
        if "vendor" not in path:
            text = site.get(path).decode()
            assert "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text, path


@pytest.mark.parametrize("path", API_PATHS)
def test_every_question_of_a_page_is_answered(site: Site, path: str) -> None:
    site.api(path)


@pytest.mark.parametrize(("path", "status"), NONSENSE)
def test_what_makes_no_sense_is_told(site: Site, path: str, status: int) -> None:
    answer, body = site.ask(f"/api/{path}", Authorization=f"Bearer {site.token}")
    assert answer.status == status and json.loads(body)["error"]


def test_tasks_are_in_the_stream_the_graph_and_their_story(site: Site) -> None:
    weft.get(work.options(name="second").remote(work.options(name="first").remote("x")))

    def drawn() -> tuple[dict[str, str], list[dict[str, str]]] | None:
        found = site.api("graph?by=task")
        ids = {node["name"]: node["id"] for node in found["nodes"] if node["status"] == "ok"}
        return (ids, found["edges"]) if {"first", "second"} <= set(ids) else None

    ids, edges = eventually(drawn)
    assert {"source": ids["first"], "target": ids["second"], "kind": "data"} in edges
    story = site.api(f"task?id={ids['second']}")
    assert (story["status"], story["uses"]) == ("ok", [ids["first"]])
    assert "second" in {one["name"] for one in site.api("stream")["slices"]}


def test_tasks_that_ended_are_not_among_those_that_wait_or_run(site: Site, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)
    kept = work.options(name="over").remote("x" * 200_000)  # with its lineage, as long as somebody holds it
    running = opens.remote(gate)
    weft.get(kept)

    def names() -> list[str] | None:
        shown = [row["name"] for row in site.api("rows/tasks")["rows"] if row["state"] == "RUNNING"]
        return shown or None

    assert eventually(names) == ["opens"]
    assert "over" not in [row["name"] for row in site.api("rows/tasks")["rows"]]
    assert "over" in [row["name"] for row in weft.state.list_tasks()]
    with open(gate, "w"):
        weft.get(running)


def test_objects_come_largest_first(site: Site) -> None:
    held = [weft.put(bytes(count)) for count in (100_000, 300_000, 200_000)]
    sizes = [row["object_size"] for row in site.api("rows/objects")["rows"]]
    assert sizes == sorted(sizes, reverse=True) and len(sizes) >= len(held)


def test_errors_have_their_remote_traceback(site: Site) -> None:
    with pytest.raises(ValueError, match="too bad"):
        weft.get(fails.options(name="<script>alert(1)</script>").remote("too bad"))
    row = site.api("errors")[0]["errors"][-1]
    assert (row["name"], row["error_type"]) == ("<script>alert(1)</script>", "ValueError")
    assert "raise ValueError(text)" in row["traceback"]


def test_logs_can_be_searched_and_a_line_of_ten_megabytes_does_no_harm(site: Site) -> None:
    weft.get(work.remote("needle \x1b[31m<b>"))
    (node,) = site.api("logs?text=needle")["nodes"]
    assert node["lines"][-1]["text"] == "needle \x1b[31m<b>"
    weft.get(work.remote("x" * (10 << 20)))
    lines = site.api("logs")["nodes"][0]["lines"]
    assert max(len(line["text"]) for line in lines) <= 4000 and max(line["left_out"] for line in lines) > 60_000


def test_metrics_are_the_engines_and_the_users(site: Site) -> None:
    @weft.remote
    def count() -> None:
        Counter("app_hits", "Hits.", tag_keys=("route",)).inc(2, {"route": "/"})
        Gauge("app_load").set(0.5)
        Histogram("app_seconds", boundaries=[1, 2]).observe(1.5)

    weft.get([count.remote(), count.remote()])
    text = site.get("/metrics").decode()
    assert 'app_hits{route="/",node=' in text and "# TYPE app_seconds histogram" in text
    (hits,) = [line for line in text.splitlines() if line.startswith("app_hits{")]
    assert hits.endswith(" 4")
    (finished,) = [line for line in text.splitlines() if line.startswith("weft_tasks_finished_total{")]
    assert int(finished.split()[-1]) >= 2


def test_boards_are_shown_until_they_are_withdrawn(site: Site) -> None:
    board.publish("tune", "mine", {"trials": []})
    assert site.api("boards?page=tune")["boards"] == [{"page": "tune", "name": "mine", "board": {"trials": []}}]
    assert site.api("boards?page=rl")["boards"] == []
    board.withdraw("tune", "mine")
    assert site.api("boards?page=tune")["boards"] == []


def test_a_board_that_is_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="is not JSON"):
        board.publish("tune", "mine", {"x": object()})


def test_a_server_that_is_killed_is_started_again(site: Site) -> None:
    site.get("/")
    server = server_process()
    server.kill()
    assert not psutil.wait_procs([server], timeout=30)[1]
    site.get("/")  # which waits in the socket until there is a server again


def test_the_token_is_in_no_argument_and_no_variable_of_the_server(site: Site) -> None:
    site.get("/")
    server = server_process()
    assert site.token not in " ".join(server.cmdline())
    with open(f"/proc/{server.pid}/environ", "rb") as file:
        assert site.token.encode() not in file.read()
