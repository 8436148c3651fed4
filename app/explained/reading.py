"""Which step is shown: with the engine, but never faster than a person reads. No Qt."""

from __future__ import annotations

from app.explained.story import Step, Story
from app.explained.texts import Language

# Silent reading: 238 English words a minute (Brysbaert 2019); 260 Chinese ones, of 1.5 characters.
_WORDS_PER_S = 238 / 60
_CHARACTERS_PER_S = 260 * 1.5 / 60
_SHORTEST_S = 3.0


def reading_s(text: str, language: Language) -> float:
    """How long a person takes to read a text, in seconds."""
    if language == "zh":
        return max(_SHORTEST_S, len(text) / _CHARACTERS_PER_S)
    return max(_SHORTEST_S, len(text.split()) / _WORDS_PER_S)


class Reading:
    """Goes from step to step of one story, by itself until the person turns a page.

    `shown` is the step on the card. While `following` it goes on, a step at a time, to where the
    engine is, each once it `was_read`; who sets that watches the time.
    """

    def __init__(self, story: Story) -> None:
        self.story = story
        self.shown = Step.TOKENIZE
        # What has ended is turned page by page.
        self.following = story.ending is None
        self.was_read = False

    @property
    def can_go_back(self) -> bool:
        """Whether there is a step before this one."""
        return self.shown > Step.TOKENIZE

    @property
    def can_go_on(self) -> bool:
        """Whether the engine has come to the next step already."""
        return self.shown < self.story.reached

    @property
    def can_follow(self) -> bool:
        """Whether the engine is at work and the card is not where it is, or would not go along."""
        running = self.story.ending is None
        return running and (not self.following or self.shown != self.story.current)

    def advance(self) -> bool:
        """Go on by a step if that is due; whether it was."""
        if not (self.following and self.was_read and self.shown < self.story.current):
            return False
        self._show(Step(self.shown + 1))
        return True

    def back(self) -> None:
        """One step back, and stay there."""
        if self.can_go_back:
            self.following = False
            self._show(Step(self.shown - 1))

    def next(self) -> None:
        """One step on, and stay there."""
        if self.can_go_on:
            self.following = False
            self._show(Step(self.shown + 1))

    def follow(self) -> None:
        """To where the engine is, and along with it from there."""
        self.following = True
        self._show(self.story.current)

    def _show(self, step: Step) -> None:
        self.shown = step
        self.was_read = False
