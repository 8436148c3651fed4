"""FLOPs and bytes of a step, counted token by token."""

from hypothesis import given
from hypothesis import strategies as st

from engine.config import GenerationRequest, KVGroupSize
from engine.costs import ModelCosts
from engine.scheduler import PrefillChunk, ScheduledStep
from engine.sequence import Sequence


def sequence(num_tokens: int, num_computed: int) -> Sequence:
    """A request whose first tokens are in the cache."""
    request = GenerationRequest("r", prompt_ids=(1,))
    made = Sequence(request, [1] * num_tokens, 1, 0, 0, "")
    made.num_computed_tokens = num_computed
    return made


@given(
    start=st.integers(0, 40),
    count=st.integers(1, 30),
    decoded=st.lists(st.integers(1, 60), max_size=3),
    window=st.none() | st.integers(1, 50),
)
def test_attention_counts_the_keys_that_are_seen(
    start: int, count: int, decoded: list[int], window: int | None
) -> None:
    """Key by key: 4 x heads x head_dim FLOPs each, and every different key is read once."""
    group = KVGroupSize(bytes_per_token=10, window=window)
    costs = ModelCosts(0, 0, 0, 0, num_heads=2, head_dim=3, kv_groups=((5, group),))
    chunk = PrefillChunk(sequence(start + count, start), count)
    step = ScheduledStep(decode=[sequence(n, n - 1) for n in decoded], prefill=[chunk])

    def seen(position: int) -> set[int]:
        return {key for key in range(position + 1) if window is None or key > position - window}

    queries = [[start + i for i in range(count)], *([n - 1] for n in decoded)]
    pairs = sum(len(seen(position)) for positions in queries for position in positions)
    read = sum(len(set().union(*map(seen, positions))) for positions in queries)
    assert costs.step(step) == (4 * 5 * 2 * 3 * pairs, 10 * (read + count + len(decoded)))
