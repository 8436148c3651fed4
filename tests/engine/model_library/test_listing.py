"""Listing models: made-up caches and stores, whole and broken."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model_library.entries import ModelEntry
from engine.model_library.folders import Place
from engine.model_library.hub_cache import hub_cache_folder
from engine.model_library.listing import folder_models, list_models
from engine.model_library.ollama import MODEL_LAYER, ollama_models, ollama_store
from engine.session import create_session
from engine.starter import starter_model_path
from tests.engine.loading.tiny_files import write_folder, write_gguf

DIGEST = "a" * 64


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No model of this machine is seen."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    for variable in (
        "HF_HOME",
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "XDG_CACHE_HOME",
        "OLLAMA_MODELS",
    ):
        monkeypatch.delenv(variable, raising=False)
    return home


def others(entries: list[ModelEntry]) -> list[ModelEntry]:
    """Without the starter, which may be installed."""
    return [entry for entry in entries if entry.source != "starter"]


def put_in_cache(repository: Path, revision: str, name: str, source: Path | None) -> Path:
    """A file of a revision, linked to its blob as in the Hub's cache; None: a dangling link."""
    blob = repository / "blobs" / f"blob-of-{revision}-{name.replace('/', '-')}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    link = repository / "snapshots" / revision / name
    link.parent.mkdir(parents=True, exist_ok=True)
    if source is not None:
        source.rename(blob)
    link.symlink_to(os.path.relpath(blob, link.parent))
    return link


def set_main(repository: Path, revision: str) -> None:
    (repository / "refs").mkdir(exist_ok=True)
    (repository / "refs" / "main").write_text(revision)


def put_in_store(store: Path, name: str, content: object, model: Path | None = None) -> None:
    """An Ollama manifest and, if given, the blob it names."""
    manifest = store / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    manifest.write_text(text, encoding="utf-8")
    blobs = store / "blobs"
    blobs.mkdir(exist_ok=True)
    if model is not None:
        model.rename(blobs / f"sha256-{DIGEST}")


def manifest_of(digest: object) -> dict[str, object]:
    layers = [
        {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:" + "b" * 64},
        {"mediaType": MODEL_LAYER, "digest": digest},
    ]
    return {"schemaVersion": 2, "layers": layers}


def test_hub_cache_folder_follows_its_variables(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same order as huggingface_hub's: HF_HUB_CACHE, HF_HOME, the platform's cache."""
    assert hub_cache_folder() == own_home / ".cache" / "huggingface" / "hub"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert hub_cache_folder() == Path("/x/huggingface/hub")
    monkeypatch.setenv("HF_HOME", "~/models")
    assert hub_cache_folder() == own_home / "models" / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", "/c")
    assert hub_cache_folder() == Path("/c")


def test_hub_cache_is_listed_by_repository(own_home: Path, tmp_path: Path) -> None:
    """GGUF files of any revision once, a safetensors folder under its repository's name."""
    cache = hub_cache_folder()
    gguf, folder = cache / "models--maker--tiny-GGUF", cache / "models--maker--tiny"
    put_in_cache(gguf, "old", "tiny-Q4.gguf", write_gguf(tmp_path / "a.gguf"))
    put_in_cache(gguf, "old", "tiny-Q8.gguf", write_gguf(tmp_path / "b.gguf"))
    new = put_in_cache(gguf, "new", "tiny-Q8.gguf", write_gguf(tmp_path / "c.gguf"))
    set_main(gguf, "new")
    made = write_folder(tmp_path / "made")
    for name in ("config.json", "model.safetensors"):
        put_in_cache(folder, "first", name, made / name)
    (cache / "datasets--maker--data" / "snapshots").mkdir(parents=True)
    entries = others(list(list_models()))
    assert {(e.name, e.detail) for e in entries} == {
        ("tiny-Q4", "maker/tiny-GGUF"),
        ("tiny-Q8", "maker/tiny-GGUF"),
        ("tiny", "maker/tiny"),
    }
    assert all(e.source == "huggingface" and not e.problem for e in entries)
    by_name = {e.name: e.path for e in entries}
    assert by_name["tiny-Q8"] == str(new)
    session = create_session()
    assert [session.inspect(e.path).architecture for e in entries] == ["llama"] * 3
    session.close()


def test_broken_hub_entries_say_why(own_home: Path, tmp_path: Path) -> None:
    """A dangling link, and a repository of which nothing is finished."""
    cache = hub_cache_folder()
    put_in_cache(cache / "models--maker--gone", "r", "gone.gguf", None)
    begun = cache / "models--maker--begun" / "blobs"
    begun.mkdir(parents=True)
    (begun / "abc.incomplete").write_bytes(b"GG")
    (cache / "models--maker--tokenizer-only" / "snapshots" / "r").mkdir(parents=True)
    problems = {e.name: e.problem for e in others(list(list_models()))}
    assert set(problems) == {"gone", "begun"}
    assert "not there" in problems["gone"]
    assert "not finished" in problems["begun"]


def test_lm_studio_folders(own_home: Path) -> None:
    """Publisher and model are the detail; projectors and hidden files are no models."""
    old, new = own_home / ".cache/lm-studio/models", own_home / ".lmstudio/models"
    for root, name in ((old, "one"), (new, "two")):
        folder = root / "maker" / "tiny-GGUF"
        folder.mkdir(parents=True)
        write_gguf(folder / f"{name}.gguf")
        write_gguf(folder / f"mmproj-{name}.gguf")
        (folder / f"._{name}.gguf").write_bytes(b"")
    entries = others(list(list_models()))
    assert [(e.name, e.source, e.detail) for e in entries] == [
        ("two", "lm-studio", "maker/tiny-GGUF"),
        ("one", "lm-studio", "maker/tiny-GGUF"),
    ]


def test_ollama_names(own_home: Path, tmp_path: Path) -> None:
    """Models are called as Ollama calls them, and their blob is what is loaded."""
    store = ollama_store()
    assert store == own_home / ".ollama" / "models"
    content = manifest_of(f"sha256:{DIGEST}")
    put_in_store(
        store, "registry.ollama.ai/library/tiny/1b", content, write_gguf(tmp_path / "t.gguf")
    )
    put_in_store(store, "registry.ollama.ai/someone/tiny/latest", content)
    put_in_store(store, "hf.co/maker/tiny-GGUF/Q4_0", content)
    assert [e.name for e in ollama_models(store)] == [
        "hf.co/maker/tiny-GGUF:Q4_0",
        "tiny:1b",
        "someone/tiny:latest",
    ]
    # Three names of one file: it is listed once.
    [entry] = others(list(list_models()))
    assert entry.path == str(store / "blobs" / f"sha256-{DIGEST}")
    session = create_session()
    assert session.inspect(entry.path).architecture == "llama"
    session.close()


@pytest.mark.parametrize(
    "content",
    [
        "not json",
        "[]",
        {"layers": "none"},
        {"layers": [{"mediaType": MODEL_LAYER}]},
        {"layers": [17]},
        manifest_of("sha256:../../../../etc/passwd"),
        manifest_of(None),
        "[" * 100_000,
    ],
)
def test_broken_manifests_are_entries_with_a_problem(tmp_path: Path, content: object) -> None:
    """Nothing in a manifest is trusted: no crash, and no path out of the store."""
    put_in_store(tmp_path, "registry.ollama.ai/library/bad/latest", content)
    [entry] = ollama_models(tmp_path)
    assert entry.name == "bad:latest"
    assert "manifest" in entry.problem
    assert Path(entry.path).is_relative_to(tmp_path)


def test_missing_blob(tmp_path: Path) -> None:
    """A manifest whose blob was pruned says what to do."""
    content = manifest_of(f"sha256:{DIGEST}")
    put_in_store(tmp_path, "registry.ollama.ai/library/t/latest", content)
    [entry] = ollama_models(tmp_path)
    assert "pull it again" in entry.problem


def test_added_folder(tmp_path: Path) -> None:
    """Files, folders, split models and whole caches below an added folder are all understood."""
    root = tmp_path / "mine"
    root.mkdir()
    write_gguf(root / "Modell-für-José.gguf")
    write_folder(root / "folders" / "tiny")
    (root / "diffusion").mkdir()
    (root / "diffusion" / "unet.safetensors").write_bytes(b"x")
    for number in (1, 2, 3):
        (root / f"big-0000{number}-of-00003.gguf").write_bytes(b"GGUF")
    (root / "half-00002-of-00002.gguf").write_bytes(b"GGUF")
    put_in_cache(root / "hub" / "models--maker--x", "r", "x.gguf", write_gguf(tmp_path / "x.gguf"))
    put_in_store(root / "ollama", "registry.ollama.ai/library/t/1", manifest_of("sha256:" + DIGEST))
    entries = others(list(list_models([str(root)])))
    problems = {e.name: e.problem for e in entries}
    assert set(problems) == {"Modell-für-José", "tiny", "big", "half", "x", "t:1"}
    assert {name for name, problem in problems.items() if problem} == {"half", "t:1"}
    assert {e.source for e in entries} == {"folder"}


def test_added_folders_without_models_are_told(tmp_path: Path) -> None:
    """An empty folder and one that is gone keep a row each, by which they can be removed."""
    empty, gone = tmp_path / "empty", tmp_path / "gone"
    empty.mkdir()
    entries = others(list(list_models([str(empty), str(gone)])))
    assert [(e.name, e.place) for e in entries] == [(str(p), str(p)) for p in (empty, gone)]
    assert "no models" in entries[0].problem
    assert "not there" in entries[1].problem


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    """A folder linked into itself is walked once; a linked folder is followed."""
    disk = tmp_path / "disk"
    disk.mkdir()
    write_gguf(disk / "far.gguf")
    root = tmp_path / "root"
    root.mkdir()
    (root / "disk").symlink_to(disk)
    (root / "self").symlink_to(root)
    assert [e.name for e in folder_models(root, "folder")] == ["far"]


def test_remembered_models(tmp_path: Path) -> None:
    """One that is listed elsewhere comes once; one that is gone keeps its path."""
    here = write_gguf(tmp_path / "here.gguf")
    gone = tmp_path / "gone.gguf"
    entries = others(list(list_models([str(tmp_path)], [str(here), str(gone)])))
    assert [(e.name, e.source, bool(e.problem)) for e in entries] == [
        ("here", "folder", False),
        ("gone", "recent", True),
    ]
    assert str(gone) in entries[1].problem


def test_the_listing_can_be_left(tmp_path: Path) -> None:
    """Nothing more is looked for once nobody wants it."""
    write_gguf(tmp_path / "a.gguf")
    assert all(e.problem for e in others(list(list_models([str(tmp_path)], wanted=lambda: False))))


@pytest.mark.starter
def test_the_starter_comes_first() -> None:
    """The model that the installation brings along leads the list."""
    first = next(iter(list_models()))
    assert (first.source, first.path) == ("starter", starter_model_path())


@given(st.text(max_size=300))
def test_any_manifest_text_gives_an_entry(text: str) -> None:
    """Whatever stands in a manifest, its model is listed once."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        put_in_store(store, "registry.ollama.ai/library/any/1", text)
        assert len(list(ollama_models(store, Place("ollama", store)))) == 1
