"""The states of finding and making models: the list, the download and the quantize dialog."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app import folders
from app.engine_link.worker import EngineProblem
from app.model_library.measuring import MeasureProgress
from app.model_library.quantize_dialog import QuantizeDialog
from app.model_library.row_texts import unread_row
from engine.config import EngineConfig
from engine.events import ModelLoaded
from engine.model_library.entries import ModelEntry
from engine.model_library.hub import HubChoice, HubFile, HubModel
from engine.model_library.hub_download import DownloadProgress
from engine.paths import quality_file
from engine.prediction import ModelSurvey, SpeedPrediction
from engine.quality.kept import keep_quality
from engine.quality.report import Quality
from engine.quantization.plan import Quantized, QuantizeProgress
from tests.fakes.figures import MODEL_NAME, estimate, model_info, resolve
from tests.fakes.window import FakeProgram, wait_until

UNKNOWN = "/models/llama/Mamba2-370M-Q4_K_M.gguf"
PROBLEM = EngineProblem(
    "The architecture “mamba2” is not supported.",
    "Known architectures: llama.",
    "Choose a model of a known architecture.",
)
ENTRIES = (
    ModelEntry("/starter/SmolLM2.gguf", "SmolLM2-135M-Instruct", "starter", "/starter"),
    ModelEntry("/models/tiny/TinyLlama-1.1B-Q8_0.gguf", "TinyLlama-1.1B-Q8_0", "folder", "/models"),
    ModelEntry(UNKNOWN, "Mamba2-370M-Q4_K_M", "folder", "/models", "llama"),
    ModelEntry(
        "/hub/models--HuggingFaceTB--SmolLM2-1.7B-Instruct/snapshots/1",
        "SmolLM2-1.7B-Instruct",
        "huggingface",
        "/hub",
        "HuggingFaceTB/SmolLM2-1.7B-Instruct",
    ),
    ModelEntry("/ollama/blobs/sha256-1", "llama3.1:8b", "ollama", "/ollama"),
    ModelEntry(
        "/usb/Llama-2-7B.gguf",
        "Llama-2-7B",
        "recent",
        "/usb",
        "",
        "It is not there any more: /usb/Llama-2-7B.gguf.",
    ),
)
FIGURES = {
    "/starter/SmolLM2.gguf": (0.135, "Q4_1, head Q8_0", 5.8, 684.0),
    "/models/tiny/TinyLlama-1.1B-Q8_0.gguf": (1.1, "Q8_0", 8.5, 4_200.0),
    "/hub/models--HuggingFaceTB--SmolLM2-1.7B-Instruct/snapshots/1": (1.71, "BF16", 16.0, 9_800.0),
    "/ollama/blobs/sha256-1": (8.03, "Q4_K + Q6_K", 8.5, 36_000.0),
}
MODEL = HubModel(
    "bartowski/SmolLM2-1.7B-Instruct-GGUF",
    "0" * 40,
    "apache-2.0",
    True,
    (
        HubChoice("SmolLM2-1.7B-Instruct-Q4_0.gguf", (HubFile("a", 991_000_000),)),
        HubChoice("SmolLM2-1.7B-Instruct-Q8_0.gguf", (HubFile("b", 1_820_000_000),)),
        HubChoice("safetensors", (HubFile("c", 3_420_000_000), HubFile("d", 2_000_000))),
        HubChoice(
            "SmolLM2-1.7B-Instruct-F32.gguf",
            (HubFile("e", 4_000_000_000), HubFile("f", 2_840_000_000)),
            "It is split into 2 files, which this program cannot open yet.",
        ),
    ),
)


def filled(program: FakeProgram) -> None:
    """The list with a model of every source, one that cannot be opened and one that is gone."""
    program.load()
    picker = program.window.finding.open_picker()
    wait_until(lambda: picker.listed)
    program.window.finding.library.rest()
    picker.model.clear_entries()
    for entry in ENTRIES:
        picker.model.add(entry, unread_row(entry))
    picker.show_rows()
    for path, figures in FIGURES.items():
        picker.show_survey(path, _survey(path, *figures))
    picker.show_survey(UNKNOWN, PROBLEM)


def _survey(path: str, billions: float, stored: str, bits: float, ttft_ms: float) -> ModelSurvey:
    """Figures of a model of so many parameters, on a laptop that reads 20 GB/s."""
    size = round(billions * 1e9 * bits / 8)
    info = replace(
        model_info(path),
        parameters=round(billions * 1e9),
        file_bytes=size,
        stored_format=stored,
        context_length=131_072 if billions > 1 else 8_192,
    )
    config = resolve(EngineConfig(path))
    memory = replace(estimate(config, info, 6_200_000_000, None), weight_bytes=size)
    speed = SpeedPrediction(ttft_ms, 18e9 / size)
    return ModelSurvey(info, config, memory, "CPU", 2, speed)


def empty(program: FakeProgram) -> None:
    """The list when nothing was found."""
    program.load()
    picker = program.window.finding.open_picker()
    wait_until(lambda: picker.listed)
    picker.model.clear_entries()
    picker.show_rows()


def choosing_download(program: FakeProgram) -> None:
    """The download dialog with a model looked up."""
    program.load()
    dialog = program.window.finding.open_download()
    dialog.name.setText(MODEL.repository)
    dialog.show_model(MODEL)


def downloading(program: FakeProgram) -> None:
    """The download dialog while bytes come."""
    choosing_download(program)
    dialog = program.window.finding.open_download()
    dialog.show_running(True)
    size = MODEL.choices[0].size
    progress = DownloadProgress(MODEL.choices[0].label, 0, size, 23_400_000.0)
    dialog.show_progress(replace(progress, done_bytes=412_000_000))


def choosing_quantization(program: FakeProgram) -> None:
    """The quantize dialog for a model that is not quantized yet."""
    _quantize_dialog(program)


def requantizing(program: FakeProgram) -> None:
    """The same for one that is, and after a refusal."""
    program.load()
    dialog = program.window.finding.open_quantize(model_info("/starter/SmolLM2.gguf"))
    dialog.methods["rtn"].setChecked(True)
    dialog.show_end(
        EngineProblem(
            f"{dialog.out.text()} exists already.",
            "It is not an empty folder, and nothing is ever written over.",
            "Name another folder, or remove this one first.",
        )
    )


def quantizing(program: FakeProgram) -> None:
    """The quantize dialog while a job runs."""
    dialog = _quantize_dialog(program)
    dialog.show_running(True)
    progress = QuantizeProgress(12, 30, 0.38, 412.0, 672.0)
    dialog.show_progress(progress)
    program.window.status.set_job("Quantizing, 38 %")


def quantized(program: FakeProgram) -> None:
    """The quantize dialog when it is done."""
    dialog = _quantize_dialog(program)
    out = Path(dialog.out.text())
    dialog.show_end(Quantized(out, 114_500_000, 210, 4.36, 65_536, 1_084.0, ()))


def measuring(program: FakeProgram) -> None:
    """The quality dialog while formats are measured."""
    model = _measured_model(program)
    dialog = program.window.finding.open_quality(model.model, model.config)
    dialog.formats["int8"].setChecked(True)
    dialog.show_running(True)
    dialog.show_progress(MeasureProgress("int4", False, 0.62, 1_710.0, 13.4))
    program.window.status.set_job("Measuring quality, 62 %")


def weights_menu(program: FakeProgram) -> None:
    """The weights menu with what was measured of some formats."""
    _measured_model(program)
    button = program.window.run_bar.weights
    button.menu().popup(button.mapToGlobal(button.rect().bottomLeft()))


def _measured_model(program: FakeProgram) -> ModelLoaded:
    """A model that is there as a file, some of whose formats have been measured."""
    folders.models_folder().mkdir(parents=True)
    path = folders.models_folder() / f"{MODEL_NAME}.gguf"
    path.write_bytes(b"GGUF")
    program.begin_load(str(path))
    wait_until(lambda: program.controller.model is not None)
    model = program.controller.model
    assert model is not None
    for weights, perplexity in (("bf16", 24.03), ("int8", 24.06), ("as-stored", 25.9)):
        result = Quality(
            *(MODEL_NAME, weights, 10, "bf16", "CPU", "native", 2, "prefill", 11_874, 11_873),
            *(1024, 512, False, 3.2, perplexity, MODEL_NAME, "fp32", 24.02, 1e-3, 0.98, 1.0),
        )
        named = replace(model.config, weight_format=weights)
        keep_quality(quality_file(), named, result, "evaluation.txt", "text")
    return model


def _quantize_dialog(program: FakeProgram) -> QuantizeDialog:
    program.load()
    info = replace(
        model_info("/hub/SmolLM2-135M-Instruct"),
        source="safetensors",
        stored_format="BF16",
        file_bytes=269_000_000,
    )
    return program.window.finding.open_quantize(info)
