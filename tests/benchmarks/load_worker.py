"""One side of load_large in a process of its own: load, answer with one token, say what it took.

python load_worker.py ours|transformers FOLDER WEIGHTS THREADS
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

PROMPT = tuple(range(1, 17))
_PERIOD_S = 0.005


class AnonymousMemory:
    """The largest RssAnon of this process, sampled on a thread."""

    def __init__(self) -> None:
        self.peak = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def now(self) -> int:
        """Bytes of anonymous memory that are resident."""
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
        raise SystemExit("This kernel does not tell RssAnon.")

    def _sample(self) -> None:
        while not self._done.wait(_PERIOD_S):
            self.peak = max(self.peak, self.now())

    def stop(self) -> None:
        """Sample no more."""
        self._done.set()
        self._thread.join()


def ours(folder: str, weights: str, threads: int) -> tuple[float, object]:
    """Seconds from the load to the first token, and what holds the model.

    The device's peaks are known before.
    """
    from engine.config import EngineConfig, GenerationRequest
    from engine.device_peaks import measure_peaks, stored_peaks
    from engine.devices import resolve_device
    from engine.events import LoadFailed, TokenEvent
    from engine.session import create_session

    device = resolve_device("cpu")
    if stored_peaks(device, threads) is None:
        for _ in measure_peaks(device, threads):
            pass
    session = create_session()
    started = time.perf_counter()
    config = EngineConfig(folder, weight_format=weights, device="cpu", threads=threads)
    for event in session.load(config):
        if isinstance(event, LoadFailed):
            raise SystemExit(f"{event.what} {event.why}")
    request = GenerationRequest("r", prompt_ids=PROMPT, max_tokens=1)
    for reported in session.generate(request):
        if isinstance(reported, TokenEvent):
            return time.perf_counter() - started, session
    raise SystemExit("no token came")


def transformers(folder: str, weights: str, threads: int) -> tuple[float, object]:
    """Seconds from the load to the first token, and the model."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(threads)
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[weights]
    started = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    ids = torch.tensor([PROMPT])
    mask = torch.ones_like(ids)
    model.generate(ids, attention_mask=mask, max_new_tokens=1, do_sample=False, pad_token_id=0)
    return time.perf_counter() - started, model


def main() -> None:
    """Prints one JSON object."""
    side, folder, weights, threads = sys.argv[1:]
    memory = AnonymousMemory()
    load = {"ours": ours, "transformers": transformers}[side]
    first_token_s, model = load(folder, weights, int(threads))
    memory.stop()
    final = memory.now()
    report = {"first_token_s": first_token_s, "final_anonymous_bytes": final}
    print(json.dumps(report | {"peak_anonymous_bytes": max(memory.peak, final)}))
    del model


if __name__ == "__main__":
    main()
