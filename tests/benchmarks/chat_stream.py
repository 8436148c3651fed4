"""What it costs the window to show a streaming answer.

Streams an answer of 4,000 tokens into a conversation in batches of 33 ms and prints the processor
time a batch takes, layout and painting included: over the whole answer, and over its last tenth.
Processor time, because all of it is spent in the window's thread and neighbours do not count.

    QT_QPA_PLATFORM=offscreen python -m tests.benchmarks.chat_stream
"""

from __future__ import annotations

import random
import statistics
import time

from PySide6.QtWidgets import QApplication

from app.chat.view import ChatView
from app.theme import load_theme

TOKENS = 4000
TOKENS_A_BATCH = 5  # 150 tokens a second, batched at 33 ms
TEXT = "the cache keeps a key and value of every token for each layer so decode reads it"


def batches(tokens_a_paragraph: int) -> list[str]:
    """Words in pieces of a batch, with a paragraph break now and then."""
    chance = random.Random(0)
    pieces = []
    for first in range(0, TOKENS, TOKENS_A_BATCH):
        end = "\n\n" if first % tokens_a_paragraph >= tokens_a_paragraph - TOKENS_A_BATCH else " "
        pieces.append(" ".join(chance.choices(TEXT.split(), k=TOKENS_A_BATCH)) + end)
    return pieces


def stream(app: QApplication, earlier_turns: int, tokens_a_paragraph: int) -> list[float]:
    """Milliseconds of each batch, and last those of finishing the answer."""
    view = ChatView(load_theme("dark"))
    view.resize(760, 700)
    view.show()
    model = view.model
    for turn in range(earlier_turns):
        model.append_user(f"Question {turn}")
        answer = model.begin_answer()
        model.append_text(answer, "An answer with **bold** words.\n\n```python\nx = 1\n```\n")
        model.finish(answer, "done", None, None)
    model.append_user("Explain the cache.")
    answer = model.begin_answer()
    app.processEvents()
    times = []
    for piece in batches(tokens_a_paragraph):
        start = time.process_time()
        model.append_text(answer, piece)
        app.processEvents()
        times.append((time.process_time() - start) * 1e3)
    start = time.process_time()
    model.finish(answer, "done", None, None)
    app.processEvents()
    times.append((time.process_time() - start) * 1e3)
    view.close()
    return times


def main() -> None:
    """Print one line a case."""
    app = QApplication.instance() or QApplication([])
    assert isinstance(app, QApplication)
    for earlier_turns, paragraph in ((0, 80), (0, TOKENS + 1), (100, 80)):
        *times, finish = stream(app, earlier_turns, paragraph)
        late = times[-len(times) // 10 :]
        print(
            f"earlier turns {earlier_turns:>3}  paragraph {paragraph:>4} tokens  "
            f"batch mean {statistics.mean(times):.2f} ms  late {statistics.mean(late):.2f} ms  "
            f"worst {max(times):.2f} ms  finish {finish:.1f} ms"
        )


if __name__ == "__main__":
    main()
