"""A step of the story in words: which sentences apply, with the figures of this very answer."""

from __future__ import annotations

from dataclasses import dataclass

from app.explained.story import Step, Story
from app.explained.texts import Language, say
from app.telemetry.format import bandwidth, count, memory, milliseconds


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a card says."""

    title: str
    sentences: tuple[str, ...]

    @property
    def body(self) -> str:
        """The sentences, a paragraph each."""
        return "\n".join(self.sentences)


def welcome(language: Language) -> Explanation:
    """What is said before there is an answer."""
    return Explanation(say("welcome_title", language), (say("welcome", language),))


def explain(story: Story, step: Step, language: Language) -> Explanation:
    """What is to be told of `step`, also before the engine has come to it."""
    tell = _Teller(story, language)
    title, sentences = {
        Step.TOKENIZE: tell.tokenize,
        Step.EMBED: tell.embed,
        Step.PREFILL: tell.prefill,
        Step.FIRST_TOKEN: tell.first_token,
        Step.DECODE: tell.decode,
        Step.DETOKENIZE: tell.detokenize,
    }[step]()
    if story.ending is not None and step == story.current:
        sentences = [*sentences, *tell.ending()]
    return Explanation(say(title, language), tuple(sentences))


class _Teller:
    """Chooses sentences; each method gives the title's key and what is said under it."""

    def __init__(self, story: Story, language: Language) -> None:
        self._story = story
        self._language: Language = language

    def _say(self, key: str, **figures: str) -> str:
        return say(key, self._language, **figures)

    def tokenize(self) -> tuple[str, list[str]]:
        story = self._story
        if story.prompt_tokens is None:
            return "tokenize_title", [self._say("tokenize_waiting"), *self._vocabulary()]
        told = [self._say("tokenize", prompt=count(story.prompt_tokens)), *self._vocabulary()]
        if story.prompt_cut is not None:
            told.append(self._say("tokenize_cut", dropped=count(story.prompt_cut.dropped_tokens)))
        elif story.queue_ms is not None:
            told.append(self._say("tokenize_queue", queue=milliseconds(story.queue_ms).text))
        return "tokenize_title", told

    def _vocabulary(self) -> list[str]:
        model = self._story.model
        return [self._say("tokenize_vocabulary", vocab=count(model.vocab_size))] if model else []

    def embed(self) -> tuple[str, list[str]]:
        told, story = [self._say("embed")], self._story
        if story.model is not None and story.computed_tokens is not None:
            model = story.model
            sizes = {"computed": story.computed_tokens, "hidden": model.hidden_size}
            figures = {name: count(size) for name, size in sizes.items()}
            told.append(self._say("embed_sizes", vocab=count(model.vocab_size), **figures))
            told.append(self._say("embed_layers", layers=count(model.num_layers)))
        return "embed_title", told

    def prefill(self) -> tuple[str, list[str]]:
        story = self._story
        told = self._cached()
        if story.prefill_ms is not None:
            told.append(self._computed(story.prefill_ms))
        elif story.prompt_tokens is not None:
            figures = count(story.tokens_done), count(story.prompt_tokens)
            told.append(self._say("prefill_running", done=figures[0], prompt=figures[1]))
        if not story.cached_tokens:
            told.append(self._say("prefill_parallel"))
        if story.prompt_kv_bytes is not None:
            told.append(self._say("prefill_cache", kv=memory(story.prompt_kv_bytes).text))
        return "prefill_title", told

    def _cached(self) -> list[str]:
        story = self._story
        if not story.cached_tokens:
            return []
        figures = count(story.cached_tokens), count(story.prompt_tokens)
        return [self._say("prefill_cached", cached=figures[0], prompt=figures[1])]

    def _computed(self, prefill_ms: float) -> str:
        chunks = self._story.num_chunks
        figures = {
            "computed": count(self._story.computed_tokens),
            "time": milliseconds(prefill_ms).text,
        }
        if chunks is None:
            return self._say("prefill_unwatched", **figures)
        if chunks == 1:
            return self._say("prefill_one", **figures)
        return self._say("prefill_chunks", chunks=count(chunks), **figures)

    def first_token(self) -> tuple[str, list[str]]:
        story = self._story
        told = [self._say("first")]
        if story.ttft_ms is None:
            if story.ending == "stop":
                told.append(self._say("first_none"))
            return "first_title", told
        ttft = milliseconds(story.ttft_ms).text
        if story.queue_ms is None or story.prefill_ms is None:
            told.append(self._say("first_ttft_only", ttft=ttft))
        else:
            queue, prefill = milliseconds(story.queue_ms), milliseconds(story.prefill_ms)
            told.append(self._say("first_ttft", ttft=ttft, queue=queue.text, prefill=prefill.text))
        return "first_title", told

    def decode(self) -> tuple[str, list[str]]:
        told, slide = [self._say("decode")], self._story.slide
        told += self._newest_step()
        if slide is not None:
            kept = {"first": count(slide.kept_first), "last": count(slide.kept_last)}
            told.append(self._say("decode_slid", token=count(self._story.slide_token), **kept))
        return "decode_title", told

    def _newest_step(self) -> list[str]:
        step = self._story.decode
        if step is None:
            return []
        figures = {
            "token": count(step.token),
            "time": milliseconds(step.step_ms).text,
            "rate": bandwidth(step.bytes_per_s).text,
        }
        if step.weight_bytes is not None and step.kv_bytes is not None:
            parts = memory(step.weight_bytes).text, memory(step.kv_bytes).text
            text = self._say("decode_split", weights=parts[0], kv=parts[1], **figures)
        elif step.reads_a_prompt:
            text = self._say("decode_mixed", bytes=memory(step.bytes).text, **figures)
        elif step.num_seqs > 1:
            shared = {"bytes": memory(step.bytes).text, "seqs": count(step.num_seqs)}
            text = self._say("decode_shared", **shared, **figures)
        else:
            text = self._say("decode_whole", bytes=memory(step.bytes).text, **figures)
        return [text, self._say("decode_why", itl=milliseconds(step.itl_ms).text)]

    def detokenize(self) -> tuple[str, list[str]]:
        story = self._story
        told = [self._say("detokenize")]
        if story.holds_back:
            told.append(self._say("detokenize_holding", token=count(story.held_token)))
        elif story.has_text and story.num_held:
            figures = count(story.held_token), count(story.num_held)
            told.append(self._say("detokenize_held", token=figures[0], held=figures[1]))
        elif story.has_text:
            told.append(self._say("detokenize_all", tokens=count(story.num_tokens)))
        return "detokenize_title", told

    def ending(self) -> list[str]:
        story = self._story
        if story.current == Step.FIRST_TOKEN and story.ending == "stop":
            return []  # said already
        if story.ending in ("cancelled", "failed"):
            return [self._say(f"end_{story.ending}")]
        return [self._say(f"end_{story.ending}", tokens=count(story.num_tokens))]
