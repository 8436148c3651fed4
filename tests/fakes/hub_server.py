"""A local stand-in for the Hugging Face Hub: model info, file metadata, ranges, gates, faults."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "1f0c8a3b5d7e9f1123456789abcdef0123456789"
PIECE = 16_384


@dataclass
class FakeHub:
    """The repositories it serves and what it does wrong; `requests` is what it was asked.

    `token` gates every repository. `stall_after` sends so many bytes of a file and then waits for
    `release`; `cut_after` closes the connection there instead, once. `corrupt` changes the bytes,
    `claim` the size a file's metadata names.
    """

    files: dict[str, dict[str, bytes]]
    license: str = "apache-2.0"
    token: str | None = None
    stall_after: int | None = None
    cut_after: int | None = None
    ignores_ranges: bool = False
    corrupt: bool = False
    claim: dict[str, int] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    endpoint: str = ""

    def ranges(self) -> list[str | None]:
        """The Range header of every GET of a file, in order."""
        return [
            headers.get("range")
            for method, path, headers in self.requests
            if method == "GET" and "/resolve/" in path
        ]

    def release(self) -> None:
        """Let a stalled file go on."""
        self.released.set()


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """Run the stand-in on a free port of this machine; its address is `hub.endpoint`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.hub = hub  # type: ignore[attr-defined]
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        hub.release()
        server.shutdown()
        server.server_close()
        thread.join()


def etag_of(name: str, data: bytes) -> str:
    """As the Hub names files: weights by SHA-256 (LFS), others by git's SHA-1 of a blob."""
    if name.endswith((".gguf", ".safetensors")):
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    @property
    def hub(self) -> FakeHub:
        hub: FakeHub = self.server.hub  # type: ignore[attr-defined]
        return hub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """Nothing: tests look at `FakeHub.requests`."""

    def _answer(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.hub.requests.append((self.command, self.path, headers))
        parts = self.path.partition("?")[0].strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        repository = "/".join(parts[2:4] if is_api else parts[:2])
        if repository not in self.hub.files:
            self._refuse(404, "RepoNotFound")
        elif self.hub.token and headers.get("authorization") != f"Bearer {self.hub.token}":
            self._refuse(401, "GatedRepo")
        elif is_api:
            self._send_info(repository)
        else:
            self._send_file(repository, "/".join(parts[4:]), headers.get("range"))

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_info(self, repository: str) -> None:
        siblings: list[dict[str, Any]] = [
            {"rfilename": name, "size": self.hub.claim.get(name, len(data))}
            for name, data in self.hub.files[repository].items()
        ]
        info = {
            "_id": "0" * 24,
            "id": repository,
            "sha": COMMIT,
            "gated": "manual" if self.hub.token else False,
            "tags": ["gguf", f"license:{self.hub.license}"] if self.hub.license else ["gguf"],
            "siblings": siblings,
        }
        body = json.dumps(info).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_file(self, repository: str, name: str, span: str | None) -> None:
        data = self.hub.files[repository].get(name)
        if data is None:
            self._refuse(404, "EntryNotFound")
            return
        start = 0
        if span and self.command == "GET" and not self.hub.ignores_ranges:
            start = int(span.removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if start else 200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{etag_of(name, data)}"')
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        size = self.hub.claim.get(name, len(data)) if self.command == "HEAD" else len(data) - start
        self.send_header("Content-Length", str(size))
        self.end_headers()
        if self.command == "GET":
            self._send_pieces(data, start)

    def _send_pieces(self, data: bytes, start: int) -> None:
        hub = self.hub
        if hub.corrupt:
            data = bytes([data[0] ^ 1]) + data[1:]
        for position in range(start, len(data), PIECE):
            if hub.cut_after is not None and position >= hub.cut_after:
                hub.cut_after = None
                return
            if hub.stall_after is not None and position >= hub.stall_after:
                hub.released.wait(timeout=10)
            try:
                self.wfile.write(data[position : position + PIECE])
            except OSError:  # the other side has hung up, as a cancelled download does
                return
