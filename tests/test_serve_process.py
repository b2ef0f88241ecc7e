"""The service as real processes: nothing acknowledged is lost, nothing is left behind, others see no harm."""

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from responder.store.sqlite import SqliteStore
from responder.web.auth import Role, hash_token
from tests.serving import (
    POLICIES,
    ROUTE,
    Serving,
    alive,
    free_port,
    kept,
    payload,
    serving,
    until,
)


class Hammer:
    """Delivers from several threads until stopped, and remembers what was acknowledged."""

    def __init__(self, service: Serving, threads: int = 4) -> None:
        self._service = service
        self._stop = threading.Event()
        self.acknowledged: list[str] = []
        self.statuses: set[int] = set()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(threads)]

    def _run(self, number: int) -> None:
        count = 0
        while not self._stop.is_set():
            fingerprint = f"{number}-{count}-{time.monotonic_ns()}"
            status = self._service.deliver(fingerprint)
            self.statuses.add(status)
            if status == 200:
                self.acknowledged.append(fingerprint)
            count += 1

    def __enter__(self) -> "Hammer":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def more(self, count: int = 50) -> None:
        """Wait for so many more acknowledgements."""
        target = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= target, what="deliveries are acknowledged again")


class TestKills:
    def test_of_web_and_actor_processes_lose_nothing(self, tmp_path: Path) -> None:
        """kill -9 in turn under load: each is replaced, and all that was answered with 200 is there, once."""
        with serving(tmp_path, workers=2) as service, Hammer(service) as hammer:
            for _ in range(3):
                hammer.more()
                for victim in (service.webs()[0], service.actor()):
                    assert victim is not None
                    os.kill(victim, signal.SIGKILL)
                    until(
                        lambda gone=victim: not alive(gone) and len(service.workers()) == 3, what="replaced"
                    )
                    until(service.actor, what="another process acts")
                    hammer.more()
        assert hammer.statuses <= {200, 0}
        there = kept(service.database)
        assert set(hammer.acknowledged) <= set(there)
        assert len(there) == len(set(there)), "a delivery was drained twice"

    def test_of_everything_lose_nothing(self, tmp_path: Path) -> None:
        """kill -9 of all processes at once under load, and again: the next start has all, and the port."""
        port = free_port()
        acknowledged: list[str] = []
        for _ in range(4):
            with serving(tmp_path, port=port) as service, Hammer(service) as hammer:
                hammer.more()
                service.kill()
            acknowledged += hammer.acknowledged
        assert set(acknowledged) <= set(kept(service.database))

    def test_of_the_master_end_the_others(self, tmp_path: Path) -> None:
        """No process is left without its master, and the port is free for the next."""
        with serving(tmp_path, workers=2) as service:
            workers = service.workers()
            service.process.kill()
            service.process.wait()
            until(lambda: not any(map(alive, workers)), what="the workers end")
            assert is_free(service.port)

    def test_leave_no_folder_once_the_next_has_started(self, tmp_path: Path) -> None:
        """What a killed service could not clear away is swept by the next start."""
        with serving(tmp_path) as service:
            left = service.shared()
            service.kill()
        assert left.exists()
        with serving(tmp_path):
            assert not left.exists()

    def test_of_an_actor_that_hangs_come_from_the_master(self, tmp_path: Path) -> None:
        """A stopped actor gives no sign of life: it is killed, and the new one takes over."""
        with serving(tmp_path, stall_seconds=4) as service:
            actor = service.actor()
            assert actor is not None
            os.kill(actor, signal.SIGSTOP)
            assert service.deliver("while-stopped") == 200
            until(
                lambda: not alive(actor) and service.actor(), seconds=60, what="the stopped actor is replaced"
            )
            until(lambda: "while-stopped" in kept_in_history(service), what="the new actor drains")


def kept_in_history(service: Serving) -> list[str]:
    store = SqliteStore(service.database)
    try:
        return [each.entry.message for each in store.history(limit=1_000_000)]
    finally:
        store.close()


class TestTwoServices:
    def test_share_one_database(self, tmp_path: Path) -> None:
        """Both take deliveries in, one acts; when that one dies whole, the other acts at once."""
        with serving(tmp_path) as first, serving(tmp_path) as second:
            with Hammer(first, 2) as one, Hammer(second, 2) as two:
                one.more()
                two.more()
                first.kill()
                two.more(200)
            wanted = {*one.acknowledged, *two.acknowledged}
            until(lambda: wanted <= set(kept_in_history(second)), what="the survivor drains all")
        there = kept(second.database)
        assert len(there) == len(set(there)), "a delivery was drained twice"


class TestStopping:
    def test_finishes_what_it_began_and_leaves_nothing(self, tmp_path: Path) -> None:
        """SIGTERM under load: status 0, every answer kept its word, no process, port, socket or folder left."""
        with serving(tmp_path, workers=2) as service:
            shared = service.shared()
            processes = [service.process.pid, *service.workers()]
            with Hammer(service) as hammer:
                hammer.more()
                assert service.stop() == 0
            assert not any(map(alive, processes))
            assert is_free(service.port)
        assert hammer.statuses <= {200, 503, 0}
        assert set(hammer.acknowledged) <= set(kept(service.database))
        assert not shared.exists()
        assert {path.name for path in tmp_path.iterdir()} <= {
            "policies.yaml", "store.db", "store.db.lock", "store.db-wal", "store.db-shm", service.log.name,
        }  # fmt: skip

    def test_does_not_wait_for_who_connects_and_says_nothing(self, tmp_path: Path) -> None:
        """As browsers do, and load balancers that look whether a port is open."""
        with serving(tmp_path) as service:
            silent = [socket.create_connection(("127.0.0.1", service.port), 60) for _ in range(3)]
            # So long that their threads have been given back.
            assert {service.deliver(str(i)) for i in range(50)} == {200}
            began = time.monotonic()
            assert service.stop() == 0
            assert time.monotonic() - began < 15
            for each in silent:
                each.close()

    def test_answers_a_delivery_that_is_on_its_way(self, tmp_path: Path) -> None:
        """A part of the body had been sent when it was told to stop: the rest is read, kept and answered."""
        body = b" " * 8000 + payload("slow")
        rest = iter(body)
        with serving(tmp_path) as service:
            connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
            connection.putrequest("POST", ROUTE)
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders()

            def on_its_way(condition: Callable[[], bool]) -> bool:
                """Send a byte and look: a client that is silent for long would be let go."""
                connection.send(bytes([next(rest)]))
                return condition()

            until(lambda: on_its_way(lambda: service.deliver("before") == 200))
            service.process.terminate()
            until(lambda: on_its_way(lambda: not service.ready()), what="it stops taking connections")
            connection.send(bytes(rest))
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())["accepted"]) == (200, 1)
            connection.close()
            assert service.process.wait(90) == 0
        assert "slow" in kept(service.database)

    def test_answers_503_on_connections_that_are_open(self, tmp_path: Path) -> None:
        """Alertmanager keeps its connection: it is told to come again, not cut off."""
        with serving(tmp_path) as service:
            connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
            headers = {"Content-Type": "application/json"}
            connection.request("POST", ROUTE, payload("a"), headers)
            assert connection.getresponse().read()
            time.sleep(0.1)  # the connection goes back from its thread to the main loop
            service.process.terminate()
            until(lambda: not _accepts(service.port), what="it stops listening")
            connection.request("POST", ROUTE, payload("b"), headers)
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("Connection")) == (503, "close")
            connection.close()
        assert "b" not in kept(service.database)

    def test_by_an_interrupt_is_the_same(self, tmp_path: Path) -> None:
        """Ctrl-C reaches every process of the terminal."""
        with serving(tmp_path) as service:
            for pid in (service.process.pid, *service.workers()):
                os.kill(pid, signal.SIGINT)
            assert service.process.wait(90) == 0
        assert "Traceback" not in service.log.read_text()


def is_free(port: int) -> bool:
    """True if a server can have it: connections that are just over do not count."""
    with socket.create_server(("127.0.0.1", port), reuse_port=False):
        return True


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(10)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class TestPolicy:
    def test_a_new_file_is_noticed_by_every_process(self, tmp_path: Path) -> None:
        """Within seconds and without a signal, also by the actor; an invalid one changes nothing and is told."""
        policy = tmp_path / "policies.yaml"
        with serving(tmp_path, workers=2) as service:
            swap(policy, POLICIES.replace("name: all", "name: new"))
            until(
                lambda: policy_of_a_delivery(service) == "new", seconds=30, what="the actor has the new file"
            )
            swap(policy, "policies: [")
            until(lambda: metrics(service)["gpu_responder_policy_valid"] == 0, seconds=30)
            assert service.ready()
            assert policy_of_a_delivery(service) == "new"

    def test_reload_is_at_once_in_all_of_them(self, tmp_path: Path) -> None:
        """When it is answered, every process has the file, whichever took the request."""
        policy = tmp_path / "policies.yaml"
        with serving(tmp_path, workers=2) as service:
            for name in ("one", "two", "three"):
                swap(policy, POLICIES.replace("name: all", f"name: {name}"))
                status, _ = service.request("POST", "/-/reload")
                assert status == 200
                assert policy_of_a_delivery(service) == name
            swap(policy, "policies: [")
            status, answer = service.request("POST", "/-/reload")
            assert (status, "policies.yaml" in json.loads(answer)["error"]) == (422, True)


def swap(path: Path, text: str) -> None:
    other = path.with_suffix(".new")
    other.write_text(text)
    os.replace(other, path)


def policy_of_a_delivery(service: Serving) -> str:
    """Deliver, and see by which policies the actor took it."""
    fingerprint = f"p-{time.monotonic_ns()}"
    assert service.deliver(fingerprint) == 200
    store = SqliteStore(service.database)

    def line() -> Any:
        return [each.entry for each in store.history(limit=5) if each.entry.message == fingerprint]

    try:
        return str(until(line)[0].policy)
    finally:
        store.close()


def metrics(service: Serving, **headers: str) -> dict[str, float]:
    status, page = service.request("GET", "/metrics", **headers)
    assert status == 200
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


class TestMetrics:
    def test_are_those_of_all_processes_and_survive_their_deaths(self, tmp_path: Path) -> None:
        """Whichever worker answers, counts are of all; a replaced process goes on from where the old one was."""
        with serving(tmp_path, workers=3) as service:
            for i in range(60):
                assert service.deliver(str(i)) == 200
            for _ in range(5):
                assert metrics(service)["gpu_responder_deliveries_total{accepted}"] == 60
            for pid in service.webs():
                os.kill(pid, signal.SIGKILL)
            until(lambda: len(service.webs()) == 3 and service.ready())
            assert service.deliver("more") == 200
            assert metrics(service)["gpu_responder_deliveries_total{accepted}"] == 61


class TestLimits:
    def test_a_body_of_50_mb_is_refused_and_the_service_goes_on(self, tmp_path: Path) -> None:
        """Declared or in chunks, it is 413; memory stays bounded."""
        with serving(tmp_path) as service:
            for chunked in (False, True):
                assert send_large(service.port, 50 * 2**20, chunked) == 413
            assert service.deliver("after") == 200
            assert peak_rss(service.webs()[0]) < 200 * 2**20

    def test_broken_chunks_are_400(self, tmp_path: Path) -> None:
        """Not 500: it is input."""
        with serving(tmp_path) as service, socket.create_connection(("127.0.0.1", service.port), 60) as raw:
            raw.sendall(
                f"POST {ROUTE} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                "Transfer-Encoding: chunked\r\n\r\nzz\r\n".encode()
            )
            assert b" 400 " in raw.recv(4096)

    @pytest.mark.parametrize(
        ("sent", "status"),
        [
            pytest.param(b"Authorization: Bearer secret\r\n\r\n", 400, id="a header in the first line's place"),
            pytest.param(b"GET / HTTP/1.1\r\nAuthorization Bearer secret\r\n\r\n", 400, id="a header without colon"),
            pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nHost: secret\r\n\r\n", 400, id="two hosts"),
            pytest.param(b"GET /secret" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", 414, id="a long address"),
            pytest.param(b"GET / HTTP/1.1\r\nX: secret" + b"a" * 9000 + b"\r\n\r\n", 431, id="a long header"),
            pytest.param(
                b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: secret\r\n\r\n", 501, id="a coding"
            ),
            pytest.param(
                b"POST /api/v1/overrides HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Transfer-Encoding: chunked\r\n\r\nsecret\r\n", 400, id="chunks of an override",
            ),
            pytest.param(
                b"POST /api/v1/overrides HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 99\r\n\r\nsecret", 400, id="an override that breaks off",
            ),
        ],
    )  # fmt: skip
    def test_what_is_no_request_is_told_so_and_not_quoted(
        self, tmp_path: Path, sent: bytes, status: int
    ) -> None:
        """In JSON as every error, and neither there nor in the log with what may be a token."""
        with serving(tmp_path) as service:
            with socket.create_connection(("127.0.0.1", service.port), 60) as raw:
                raw.sendall(sent)
                raw.shutdown(socket.SHUT_WR)
                head, _, body = b"".join(iter(lambda: raw.recv(65536), b"")).partition(b"\r\n\r\n")
            assert f" {status} ".encode() in head.splitlines()[0]
            assert json.loads(body)["error"]
            assert b"Content-Type: application/json" in head
            assert "secret" not in service.log.read_text() + body.decode()
            assert "Traceback" not in service.log.read_text()

    def test_who_connects_and_says_nothing_holds_no_thread(self, tmp_path: Path) -> None:
        """Each would hold one for five seconds: a hundred keep nobody waiting."""
        with serving(tmp_path, threads=1) as service, contextlib.ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(socket.create_connection(("127.0.0.1", service.port), 60))
            began = time.monotonic()
            assert service.deliver("through") == 200
            assert time.monotonic() - began < 30

    def test_silent_clients_do_not_keep_others_out(self, tmp_path: Path) -> None:
        """More connections that send half a request than there are threads: a delivery is still answered."""
        with serving(tmp_path, threads=1) as service, contextlib.ExitStack() as stack:
            for _ in range(8):
                silent = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), 60))
                silent.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\n")
            until(lambda: service.deliver("through") == 200, seconds=60)
            assert "Traceback" not in service.log.read_text()

    @pytest.mark.parametrize(
        "begun",
        [
            pytest.param(b"GET /-/healthy HTTP/1.1\r\nX: ", id="a header"),
            pytest.param(
                b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
                b"Content-Length: 9000\r\n\r\n", id="a form",
            ),
        ],
    )  # fmt: skip
    def test_trickling_clients_do_not_keep_others_out(self, tmp_path: Path, begun: bytes) -> None:
        """What comes byte by byte is not silence, but it ends too, and sooner while others wait for a thread."""
        with serving(tmp_path, threads=1) as service, contextlib.ExitStack() as stack:
            trickling = [
                stack.enter_context(socket.create_connection(("127.0.0.1", service.port), 60))
                for _ in range(15)
            ]
            for client in trickling:
                client.sendall(begun)
            began = time.monotonic()
            stop = threading.Event()

            def trickle() -> None:
                while not stop.wait(0.5):
                    for client in trickling:
                        with contextlib.suppress(OSError):
                            client.sendall(b"y")

            thread = threading.Thread(target=trickle)
            thread.start()
            try:
                until(lambda: service.deliver("through") == 200, seconds=60)
                assert time.monotonic() - began < 25
            finally:
                stop.set()
                thread.join()
            assert "Traceback" not in service.log.read_text()


def send_large(port: int, size: int, chunked: bool) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest("POST", ROUTE)
    connection.putheader("Content-Type", "application/json")
    connection.putheader(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(size))))
    connection.endheaders()
    block = b" " * 2**20
    # It may answer, and cut us off, before it has all.
    with contextlib.suppress(OSError):
        for _ in range(size // len(block)):
            connection.send(b"%x\r\n%b\r\n" % (len(block), block) if chunked else block)
        if chunked:
            connection.send(b"0\r\n\r\n")
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def peak_rss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise AssertionError


class TestProcesses:
    def test_that_answer_http_know_no_kubernetes_client(self, tmp_path: Path) -> None:
        """It costs memory and start time, and a fault in it must not reach intake."""
        script = (
            "import sys, responder.serve, responder.web.app, responder.web.operations; "
            "print([name for name in sys.modules if name.split('.')[0] in ('kubernetes', 'tenacity', 'rich')])"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"

    def test_start_though_the_disk_filled_up_meanwhile(self, tmp_path: Path) -> None:
        """A worker that is replaced while the store is broken answers 503 instead of ending the service."""
        with serving(tmp_path) as service:
            database = service.database.read_bytes()
            for path in (service.database, *tmp_path.glob("store.db-*")):
                path.unlink()
            service.database.write_bytes(b"rubbish" * 1000)
            os.kill(service.webs()[0], signal.SIGKILL)
            until(lambda: service.deliver("lost") == 503, what="503 from the new worker")
            os.replace(_written(tmp_path / "copy", database), service.database)
            until(lambda: service.deliver("after") == 200, what="it recovers by itself")


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


class TestStarting:
    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            pytest.param(
                ["--bind", "0.0.0.0:9099"], "without tokens only this host may connect", id="all addresses"
            ),
            pytest.param(["--bind", "9099"], "write <address>:<port>", id="no address"),
            pytest.param(["--bind", "127.0.0.1:99999"], "write <address>:<port>", id="no such port"),
            pytest.param(["--prometheus-url", "prometheus:9090"], "--prometheus-url: ", id="no scheme"),
            pytest.param(["--alertmanager-url", "http://:9093"], "--alertmanager-url: ", id="no host"),
            pytest.param(["--prometheus-url", "http://[::1"], "--prometheus-url: ", id="no URL at all"),
            pytest.param(["--store", "postgres:x"], "is no store: write sqlite:<path>", id="another store"),
            pytest.param(
                ["--store", "sqlite:/nowhere/x.db"], "does not exist: make it first", id="no folder"
            ),
            pytest.param(["--token-hashes-file", "/nowhere"], "/nowhere: No such file", id="no token file"),
            pytest.param(
                ["--certfile", "/nowhere"], "--certfile: /nowhere cannot be read", id="no certificate"
            ),
            pytest.param(["--policy", "/nowhere.yaml"], "/nowhere.yaml", id="no policy file"),
        ],
    )
    def test_refuses_what_cannot_work_in_one_sentence(
        self, tmp_path: Path, options: list[str], sentence: str
    ) -> None:
        """Status 1 and no traceback."""
        (tmp_path / "policies.yaml").write_text(POLICIES)
        defaults = ["--policy", str(tmp_path / "policies.yaml"), "--store", f"sqlite:{tmp_path}/store.db"]
        done = subprocess.run(
            [sys.executable, "-m", "responder", "serve", *defaults, *options],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 1
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr

    def test_takes_deliveries_in_though_the_cluster_is_not_configured(self, tmp_path: Path) -> None:
        """A wrong kubeconfig is told in one sentence and mended without a restart; intake goes on meanwhile."""
        (tmp_path / "policies.yaml").write_text(POLICIES)
        port, log = free_port(), tmp_path / "log"
        command = [sys.executable, "-m", "responder", "serve", "--policy", str(tmp_path / "policies.yaml")]
        command += ["--store", f"sqlite:{tmp_path}/store.db", "--bind", f"127.0.0.1:{port}"]
        with log.open("ab") as output:
            process = subprocess.Popen([*command, "--kubeconfig", str(tmp_path / "nowhere")], stderr=output)
        service = Serving(process, tmp_path, port, log)
        try:
            until(lambda: "nowhere does not exist; check --kubeconfig" in log.read_text())
            assert until(lambda: service.deliver("kept")) == 200
            assert "Traceback" not in log.read_text()
        finally:
            assert service.stop() == 0

    def test_says_that_the_port_is_taken(self, tmp_path: Path) -> None:
        """And ends."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with serving(tmp_path, port=port, wait=False) as service:
                assert service.process.wait(90) != 0
            assert f"127.0.0.1:{port} cannot be had: another program listens there" in service.log.read_text()
            assert "Traceback" not in service.log.read_text()

    def test_takes_every_option_from_the_environment(self, tmp_path: Path) -> None:
        """As GPU_RESPONDER_<NAME>."""
        (tmp_path / "policies.yaml").write_text(POLICIES)
        environment = {
            **os.environ,
            "GPU_RESPONDER_POLICY": str(tmp_path / "policies.yaml"),
            "GPU_RESPONDER_STORE": f"sqlite:{tmp_path}/store.db",
            "GPU_RESPONDER_BIND": "192.0.2.1:1",
        }
        done = subprocess.run(
            [sys.executable, "-m", "responder", "serve"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert (done.returncode, "192.0.2.1" in done.stderr) == (1, True)


class TestTls:
    def test_serves_https_and_asks_for_client_certificates(self, tmp_path: Path) -> None:
        """With --ca-certs nobody without a certificate of that authority gets in, and one with it does."""
        make_certificates(tmp_path)
        options = {name: str(tmp_path / f"{name}.pem") for name in ("certfile", "keyfile")}
        tokens = tmp_path / "tokens"
        entry = {"name": "am", "role": Role.ALERTMANAGER, "sha256": hash_token("t")}
        tokens.write_text(json.dumps({"tokens": [entry]}))
        more = {**options, "ca_certs": str(tmp_path / "ca.pem"), "token_hashes_file": str(tokens)}
        with serving(tmp_path, wait=False, **more) as service:
            until(lambda: _accepts(service.port))
            trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
            with pytest.raises((ssl.SSLError, OSError)):
                _deliver_by_tls(service.port, trusting)
            trusting.load_cert_chain(tmp_path / "certfile.pem", tmp_path / "keyfile.pem")
            assert until(lambda: _deliver_by_tls(service.port, trusting)) == 200


def _deliver_by_tls(port: int, context: ssl.SSLContext) -> int:
    connection = http.client.HTTPSConnection("localhost", port, timeout=60, context=context)
    try:
        headers = {"Content-Type": "application/json", "Authorization": "Bearer t"}
        connection.request("POST", ROUTE, payload("a"), headers)
        answer = connection.getresponse()
        answer.read()
        # A second one on the same connection, whose bytes may wait within the TLS layer.
        connection.request("POST", ROUTE, payload("b"), headers)
        return connection.getresponse().status
    finally:
        connection.close()


def make_certificates(folder: Path) -> None:
    def openssl(command: str) -> None:
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)

    # Without a key usage it is no CA to Python 3.13 and newer.
    usage = "-addext keyUsage=critical,keyCertSign,cRLSign"
    openssl(f"req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=ca {usage} -keyout ca.key -out ca.pem")
    openssl("req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout keyfile.pem -out request.pem")
    (folder / "names").write_text("subjectAltName=DNS:localhost\nauthorityKeyIdentifier=keyid\n")
    openssl(
        "x509 -req -days 1 -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial "
        "-extfile names -out certfile.pem"
    )
