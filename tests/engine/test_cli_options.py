"""The common options: checked in the config's own words, defaults left to the engine."""

from __future__ import annotations

import argparse

import pytest

from engine import cli_options, starter
from engine.config import EngineConfig
from engine.session import EngineError


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli_options.add_common_options(parser)
    return parser.parse_args(arguments)


def test_only_given_options_are_set() -> None:
    """What is not given stays as the engine has it."""
    config = cli_options.config_from(parse("--model", "m.gguf", "--context", "2048"))
    assert config == EngineConfig("m.gguf", context_length=2048)


def test_all_options_reach_the_config() -> None:
    """Each option means its field."""
    args = parse(
        "--model=m", "--weights=int8", "--kv=fp32", "--device=cuda:1", "--threads=3", "--context=64"
    )
    expected = EngineConfig("m", "int8", "fp32", 64, "cuda:1", 3)
    assert cli_options.config_from(args) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        "--weights=int3",
        "--kv=int2",
        "--context=8",
        "--context=many",
        "--device=tpu",
        "--threads=0",
    ],
)
def test_wrong_values_are_usage_errors(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and the message names the option."""
    with pytest.raises(SystemExit) as exit_:
        parse(wrong)
    assert exit_.value.code == 2
    assert wrong.partition("=")[0] in capsys.readouterr().err


def test_no_model_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --model and without the starter the person is told what to do."""
    monkeypatch.setattr(starter.importlib.util, "find_spec", lambda _name: None)
    assert starter.starter_model_path() is None
    with pytest.raises(EngineError, match="--model"):
        cli_options.config_from(parse())


@pytest.mark.starter
def test_starter_is_found_without_importing_it() -> None:
    """Its package needs modules that are not installed; the file is found all the same."""
    import sys

    path = starter.starter_model_path()
    assert path is not None
    assert path.endswith(".gguf")
    assert starter.STARTER_PACKAGE not in sys.modules
