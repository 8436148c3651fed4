"""Downloads from the Hugging Face Hub into its own cache: resumable, verified, cancellable.

The bytes are fetched here, because huggingface_hub drops what a stopped download already has.
Where a finished file belongs, and the links to it, is left to huggingface_hub.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.model_library.hub import Hub, HubChoice, HubFile, HubModel
from engine.model_library.hub_cache import REPOSITORY_PREFIX
from engine.model_library.hub_errors import gigabytes, told_errors
from engine.model_library.transfer_rate import TransferRate
from engine.session import EngineError

_CHUNK_BYTES = 1 << 16
_HASH_BYTES = 1 << 20
# A connection that breaks is opened again this often without a byte between.
_ATTEMPTS = 3
_LOCK_WAIT_S = 1.0
_REPORT_S = 0.1


class DownloadStopped(Exception):
    """The person cancelled; what has come is kept for the next time."""


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """Bytes of all files; `bytes_per_s` None until known. `checking`: all bytes came."""

    file: str
    done_bytes: int
    total_bytes: int
    bytes_per_s: float | None
    checking: bool = False

    @property
    def left_s(self) -> float | None:
        """Seconds that remain at this pace."""
        return (self.total_bytes - self.done_bytes) / self.bytes_per_s if self.bytes_per_s else None


def free_bytes(folder: Path) -> int:
    """Free space where `folder` is or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


class HubDownload:
    """One choice of one model on its way. Runs in the caller's thread; `stop` from any."""

    def __init__(
        self,
        hub: Hub,
        model: HubModel,
        choice: HubChoice,
        report: Callable[[DownloadProgress], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hub, self._model, self._choice = hub, model, choice
        self._report = report
        self._clock = clock
        self._rate = TransferRate(clock)
        self._done = 0
        self._reported_s = float("-inf")
        self._stopped = False

    def stop(self) -> None:
        """Make `run` leave with DownloadStopped at the next piece that comes."""
        self._stopped = True

    def run(self) -> str:
        """Download what is not there yet; returns the path to load.

        Raises EngineError and DownloadStopped; either keeps what has come.
        """
        with told_errors(self._model.repository):
            self._check_space()
            paths = [self._download(each) for each in self._choice.files]
            self._set_main()
        weights = Path(paths[-1])
        return str(weights if weights.suffix == ".gguf" else weights.parent)

    # --- before ---------------------------------------------------------------------------

    def _check_space(self) -> None:
        free = free_bytes(self._hub.cache)
        started = sum(each.stat().st_size for each in self._repository.glob("blobs/*.incomplete"))
        if self._choice.size - started > free:
            raise EngineError(
                "There is not enough room on the disk.",
                f"The download takes {gigabytes(self._choice.size)}; "
                f"{gigabytes(free)} are free where the Hugging Face cache lies.",
                "Free some space, choose a smaller format, or set HF_HOME to another disk.",
            )

    @property
    def _repository(self) -> Path:
        name = self._model.repository.replace("/", "--")
        return self._hub.cache / f"{REPOSITORY_PREFIX}{name}"

    # --- one file -------------------------------------------------------------------------

    def _download(self, file: HubFile) -> str:
        """Bring one file into the cache; its path in the revision's folder."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

        hub, model = self._hub, self._model
        where: dict[str, Any] = {"revision": model.revision, "endpoint": hub.endpoint}
        url = hf_hub_url(model.repository, file.name, **where)
        before = self._done
        if self._stopped:
            raise DownloadStopped
        if not (self._repository / "snapshots" / model.revision / file.name).exists():
            facts = get_hf_file_metadata(url, token=hub.token, endpoint=hub.endpoint)
            if facts.etag is None or facts.size is None:
                raise _odd_answer(file)
            self._fetch_blob(url, file, facts.etag, facts.size)
        path = hf_hub_download(
            model.repository, file.name, cache_dir=hub.cache, token=hub.token, **where
        )
        self._advance_to(before + file.size, file)
        return str(path)

    def _fetch_blob(self, url: str, file: HubFile, etag: str, size: int) -> None:
        blob = self._repository / "blobs" / etag
        if blob.exists():
            return
        blob.parent.mkdir(parents=True, exist_ok=True)
        part = blob.with_name(f"{etag}.incomplete")
        with self._locked(etag, file):
            self._fetch(url, file, part, size)
            self._check(file, part, etag, size)
            os.replace(part, blob)

    @contextmanager
    def _locked(self, etag: str, file: HubFile) -> Iterator[None]:
        """Hold the lock that huggingface_hub takes for the same file."""
        from huggingface_hub.utils import WeakFileLock

        folder = self._hub.cache / ".locks" / self._repository.name
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with WeakFileLock(folder / f"{etag}.lock", timeout=_LOCK_WAIT_S):
                yield
        except TimeoutError as error:
            raise EngineError(
                f"{file.name} is not downloaded now.",
                "Another program is downloading it at the moment.",
                "Wait until it is done, then look for it in the list of models.",
            ) from error

    def _fetch(self, url: str, file: HubFile, part: Path, size: int) -> None:
        """Append to `part` until it has `size` bytes, over several connections if need be."""
        from huggingface_hub.utils import httpx

        base = self._done
        failures = 0
        while (have := _size(part)) < size:
            self._advance_to(base + have, file, arrived=False)
            try:
                self._receive(url, file, part, base)
            except httpx.TransportError:
                failures = 1 if _size(part) > have else failures + 1
                if failures >= _ATTEMPTS:
                    raise
            else:
                break
        self._advance_to(base + _size(part), file, arrived=False)

    def _receive(self, url: str, file: HubFile, part: Path, base: int) -> None:
        """One connection: ask for what `part` lacks and append it."""
        from huggingface_hub import constants, get_session
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

        have = _size(part)
        headers = build_hf_headers(token=self._hub.token) | {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        request: dict[str, Any] = {"headers": headers, "timeout": timeout, "follow_redirects": True}
        with get_session().stream("GET", url, **request) as response:
            hf_raise_for_status(response)
            goes_on = response.status_code == 206
            with part.open("ab" if goes_on else "wb") as out:
                for chunk in response.iter_bytes(_CHUNK_BYTES):
                    out.write(chunk)
                    self._advance_to(base + out.tell(), file)
                    if self._stopped:
                        raise DownloadStopped

    def _check(self, file: HubFile, part: Path, etag: str, size: int) -> None:
        """Size and checksum as the Hub names them; what does not match is thrown away."""
        have = _size(part)
        if have < size:
            raise EngineError(
                f"{file.name} came only in part.",
                f"{have:,} of {size:,} bytes arrived before the Hub ended the connection.",
                "Download again: it goes on where it stopped.",
            )
        self._tell(file, checking=True)
        if have > size or not self._matches(part, etag, size):
            part.unlink()
            raise EngineError(
                f"{file.name} arrived damaged.",
                "Its content does not match the checksum that the Hub names.",
                "Download it again: the damaged file was removed.",
            )

    def _matches(self, part: Path, etag: str, size: int) -> bool:
        """Large files are named by their SHA-256, small ones by git's SHA-1 of a blob."""
        if len(etag) == 64:
            digest = hashlib.sha256()
        elif len(etag) == 40:
            digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        else:
            return True  # a mirror that names files in its own way
        with part.open("rb") as data:
            while chunk := data.read(_HASH_BYTES):
                digest.update(chunk)
                if self._stopped:
                    raise DownloadStopped
        return digest.hexdigest() == etag

    # --- after ----------------------------------------------------------------------------

    def _set_main(self) -> None:
        """Let the revision be found as main, as after a download by huggingface_hub."""
        reference = self._repository / "refs" / "main"
        reference.parent.mkdir(parents=True, exist_ok=True)
        reference.write_text(self._model.revision, "utf-8")

    def _advance_to(self, done: int, file: HubFile, *, arrived: bool = True) -> None:
        if arrived:
            self._rate.add(done - self._done)
        self._done = done
        if self._clock() - self._reported_s >= _REPORT_S or done == self._choice.size:
            self._tell(file)

    def _tell(self, file: HubFile, *, checking: bool = False) -> None:
        self._reported_s = self._clock()
        total = self._choice.size
        rate = self._rate.per_second()
        self._report(DownloadProgress(file.name, self._done, total, rate, checking))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _odd_answer(file: HubFile) -> EngineError:
    return EngineError(
        f"{file.name} cannot be downloaded.",
        "The server's answer names neither its size nor its checksum.",
        "Check HF_ENDPOINT: it should name a Hub or a full mirror of it.",
    )
