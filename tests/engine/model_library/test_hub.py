"""Looking up and downloading models, against a local stand-in for the Hub."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model_library import hub_download
from engine.model_library.entries import ModelEntry
from engine.model_library.hub import Hub, HubChoice, HubModel, repository_name
from engine.model_library.hub_cache import cached_models
from engine.model_library.hub_download import DownloadProgress, DownloadStopped, HubDownload
from engine.session import EngineError
from tests.fakes.hub_server import COMMIT, FakeHub, etag_of, serving

GGUF_REPOSITORY = "maker/tiny-GGUF"
FOLDER_REPOSITORY = "maker/tiny"
SMALL, LARGE = b"GGUF" + b"s" * 90_000, b"GGUF" + bytes(range(256)) * 4_000


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    gguf = {
        "README.md": b"# Tiny",
        "tiny-Q8_0.gguf": LARGE,
        "tiny-Q4_0.gguf": SMALL,
        "mmproj-tiny.gguf": b"GGUF",
        "big-00001-of-00002.gguf": b"GGUF1",
        "big-00002-of-00002.gguf": b"GGUF2",
    }
    folder = {
        "config.json": b'{"model_type": "llama"}',
        "tokenizer.json": b"{}",
        "model-00001-of-00002.safetensors": b"a" * 300,
        "model-00002-of-00002.safetensors": b"b" * 400,
        "model.safetensors.index.json": b"{}",
        "consolidated.safetensors": b"c" * 700,
        "original/params.json": b"{}",
        "pytorch_model.bin": b"p" * 700,
    }
    with serving(FakeHub({GGUF_REPOSITORY: gguf, FOLDER_REPOSITORY: folder})) as hub:
        yield hub


@pytest.fixture
def hub(fake: FakeHub, tmp_path: Path) -> Hub:
    return Hub(endpoint=fake.endpoint, cache=tmp_path / "hub")


def choose(model: HubModel, label: str) -> HubChoice:
    return next(choice for choice in model.choices if choice.label == label)


def download(hub: Hub, label: str = "tiny-Q8_0.gguf") -> HubDownload:
    model = hub.find(GGUF_REPOSITORY)
    return HubDownload(hub, model, choose(model, label))


def partial_files(hub: Hub) -> list[Path]:
    return sorted(hub.cache.glob("*/blobs/*.incomplete"))


def listed(hub: Hub) -> list[ModelEntry]:
    return list(cached_models(hub.cache))


def test_gguf_choices_come_one_by_one(hub: Hub) -> None:
    """Each file is a choice, smallest first; projectors are none, split files say why not."""
    model = hub.find(GGUF_REPOSITORY)
    assert (model.repository, model.revision) == (GGUF_REPOSITORY, COMMIT)
    assert (model.license, model.gated) == ("apache-2.0", False)
    assert [c.label for c in model.choices] == ["tiny-Q4_0.gguf", "tiny-Q8_0.gguf", "big.gguf"]
    assert [bool(c.problem) for c in model.choices] == [False, False, True]
    assert model.choices[1].size == len(LARGE)


def test_safetensors_files_come_together(hub: Hub) -> None:
    """What loading needs and nothing beside: no other formats, no second copy."""
    [choice] = hub.find(FOLDER_REPOSITORY).choices
    assert {f.name for f in choice.files} == {
        "config.json",
        "tokenizer.json",
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    }


def test_download_lies_where_the_listing_looks(hub: Hub) -> None:
    """A finished file is in the Hub's own layout: blob by checksum, link, main."""
    reports: list[DownloadProgress] = []
    model = hub.find(GGUF_REPOSITORY)
    path = HubDownload(hub, model, choose(model, "tiny-Q8_0.gguf"), reports.append).run()
    assert Path(path).read_bytes() == LARGE
    assert Path(path).resolve().name == etag_of("tiny-Q8_0.gguf", LARGE)
    [entry] = listed(hub)
    assert (entry.path, entry.detail, entry.problem) == (path, GGUF_REPOSITORY, "")
    repository = hub.cache / "models--maker--tiny-GGUF"
    assert (repository / "refs" / "main").read_text() == COMMIT
    assert reports[-1].done_bytes == reports[-1].total_bytes == len(LARGE)
    done = [report.done_bytes for report in reports]
    assert done == sorted(done)


def test_a_folder_downloads_whole(hub: Hub) -> None:
    """All files of a safetensors model stand in one folder, which is the path to load."""
    model = hub.find(FOLDER_REPOSITORY)
    path = Path(HubDownload(hub, model, model.choices[0]).run())
    assert (path / "config.json").read_bytes() == b'{"model_type": "llama"}'
    assert (path / "model-00002-of-00002.safetensors").read_bytes() == b"b" * 400
    assert [entry.path for entry in listed(hub)] == [str(path)]


def test_what_is_there_is_not_fetched_again(hub: Hub, fake: FakeHub) -> None:
    """A second download of the same file moves no byte of it."""
    first = download(hub).run()
    fetched = len(fake.ranges())
    assert download(hub).run() == first
    assert len(fake.ranges()) == fetched


def test_cancel_keeps_what_came_and_resume_goes_on(hub: Hub, fake: FakeHub) -> None:
    """Cancelled midway, the next download asks for the rest only, and the whole is right."""
    model = hub.find(GGUF_REPOSITORY)

    def stop_midway(progress: DownloadProgress) -> None:
        if progress.done_bytes > 300_000:
            job.stop()

    ticking = map(float, itertools.count())  # a second a look, so that every piece is reported
    job = HubDownload(
        hub, model, choose(model, "tiny-Q8_0.gguf"), stop_midway, lambda: next(ticking)
    )
    with pytest.raises(DownloadStopped):
        job.run()
    [part] = partial_files(hub)
    have = part.stat().st_size
    assert 0 < have < len(LARGE)
    assert [entry.problem for entry in listed(hub)] == ["Its download was not finished."]
    path = download(hub).run()
    assert fake.ranges() == [None, f"bytes={have}-"]
    assert Path(path).read_bytes() == LARGE
    assert partial_files(hub) == []


def test_a_broken_connection_is_taken_up_again(hub: Hub, fake: FakeHub) -> None:
    """A connection lost midway costs nothing: the same download asks for the rest."""
    fake.cut_after = 320_000
    assert Path(download(hub).run()).read_bytes() == LARGE
    [first, second] = fake.ranges()
    assert first is None
    assert second is not None
    assert 0 < int(second.removeprefix("bytes=").rstrip("-")) <= 327_680


def test_a_server_without_ranges_starts_over(hub: Hub, fake: FakeHub) -> None:
    """An answer of the whole file replaces what there was, instead of following it."""
    job = download(hub)
    job.stop()
    with pytest.raises(DownloadStopped):
        job.run()
    blobs = hub.cache / "models--maker--tiny-GGUF" / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    (blobs / f"{etag_of('tiny-Q8_0.gguf', LARGE)}.incomplete").write_bytes(LARGE[:5_000])
    fake.ignores_ranges = True
    assert Path(download(hub).run()).read_bytes() == LARGE


def test_damage_is_found_and_removed(hub: Hub, fake: FakeHub) -> None:
    """A checksum that does not match is told, and nothing of the file is kept."""
    fake.corrupt = True
    with pytest.raises(EngineError, match="damaged"):
        download(hub).run()
    assert partial_files(hub) == []
    fake.corrupt = False
    assert Path(download(hub).run()).read_bytes() == LARGE


def test_a_file_shorter_than_promised_is_told(hub: Hub, fake: FakeHub) -> None:
    """Fewer bytes than the metadata names are no finished file."""
    fake.claim = {"tiny-Q8_0.gguf": len(LARGE) + 10}
    with pytest.raises(EngineError, match="only in part"):
        download(hub).run()
    assert listed(hub)[0].problem


def test_gated_without_and_with_token(hub: Hub, fake: FakeHub) -> None:
    """A gated model says what to do; the token opens it and is shown nowhere."""
    fake.token = "hf_secret"
    with pytest.raises(EngineError, match="access token") as caught:
        hub.find(GGUF_REPOSITORY)
    assert caught.value.why
    trusted = Hub(endpoint=hub.endpoint, token="hf_secret", cache=hub.cache)
    assert "hf_secret" not in repr(trusted)
    model = trusted.find(GGUF_REPOSITORY)
    assert model.gated
    assert Path(HubDownload(trusted, model, model.choices[0]).run()).read_bytes() == SMALL


def test_unknown_model(hub: Hub) -> None:
    """A name that is not there is told as such."""
    with pytest.raises(EngineError, match="no model maker/other"):
        hub.find("maker/other")


def test_a_file_that_vanished(hub: Hub, fake: FakeHub) -> None:
    """A file removed between look-up and download is told as such."""
    job = download(hub)
    del fake.files[GGUF_REPOSITORY]["tiny-Q8_0.gguf"]
    with pytest.raises(EngineError, match="was not found"):
        job.run()


def test_no_network(tmp_path: Path) -> None:
    """Nobody listens: the sentence names network, proxy and mirror."""
    with pytest.raises(EngineError, match="cannot be reached") as caught:
        Hub(endpoint="http://127.0.0.1:9", cache=tmp_path).find(GGUF_REPOSITORY)
    assert "HF_ENDPOINT" in caught.value.next_step


def test_a_full_disk_is_told_before_the_first_byte(
    hub: Hub, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too little room is found out before anything is fetched."""
    job = download(hub)
    monkeypatch.setattr(hub_download, "free_bytes", lambda _: len(LARGE) - 1)
    with pytest.raises(EngineError, match="not enough room"):
        job.run()
    assert fake.ranges() == []


def test_the_disk_fills_up_midway(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says while writing becomes the same three sentences."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(HubDownload, "_receive", full)
    with pytest.raises(EngineError, match="disk is full"):
        download(hub).run()


def test_free_bytes_of_a_folder_that_will_be(tmp_path: Path) -> None:
    """The nearest folder that exists answers for one that does not."""
    assert hub_download.free_bytes(tmp_path / "a" / "b") == pytest.approx(
        shutil.disk_usage(tmp_path).free, rel=0.05
    )


@pytest.mark.parametrize(
    "text",
    [
        "maker/tiny",
        "  maker/tiny\n",
        "https://huggingface.co/maker/tiny",
        "https://huggingface.co/maker/tiny/tree/main?x=1",
        "https://mirror.example/maker/tiny/",
    ],
)
def test_names_and_addresses(text: str) -> None:
    """A name, or the address of any page of the model."""
    assert repository_name(text) == "maker/tiny"


@given(st.text(alphabet=st.characters(blacklist_characters="/"), max_size=60))
def test_what_is_no_name_is_refused(text: str) -> None:
    """One part alone never becomes a request."""
    with pytest.raises(EngineError, match="two parts"):
        repository_name(text)
