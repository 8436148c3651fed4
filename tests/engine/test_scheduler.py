"""Bookkeeping without tensors: block tables, prefix reuse, token budget, preemption."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.block_manager import BlockManager, PoolSpec
from engine.config import EngineConfig, GenerationRequest, KVGroupSize
from engine.kv_cache import NULL_BLOCK
from engine.scheduler import ScheduledStep, Scheduler
from engine.sequence import Sequence

BLOCK = 4


def make(prompt: list[int], max_tokens: int = 4, name: str = "r") -> Sequence:
    """A sequence with a prompt of these ids."""
    request = GenerationRequest(name, prompt_ids=tuple(prompt))
    return Sequence(request, prompt, max_tokens, 0, 0, "")


def run_step(scheduler: Scheduler, next_id: int = 1) -> ScheduledStep:
    """Schedule, pretend to compute, sample `next_id` where a token is due."""
    step = scheduler.schedule()
    last = [chunk.sequence for chunk in step.prefill if chunk.is_last]
    scheduler.commit(step)
    for sequence in step.decode + last:
        sequence.token_ids.append(next_id)
    return step


def fixture(
    num_blocks: int = 8,
    max_num_seqs: int = 4,
    budget: int = 16,
    prefix_caching: bool = True,
    windows: tuple[int, ...] = (),
) -> tuple[Scheduler, BlockManager]:
    """A scheduler over a small pool, and over small ones of windowed groups."""
    limits = EngineConfig(
        "", block_size=BLOCK, max_num_seqs=max_num_seqs, max_num_batched_tokens=budget
    )
    sizes = (KVGroupSize(1), *(KVGroupSize(1, window) for window in windows))
    specs = [PoolSpec(s.pool_blocks(limits, num_blocks * BLOCK), s.window) for s in sizes]
    blocks = BlockManager(specs, BLOCK, prefix_caching)
    return Scheduler(blocks, max_num_seqs, budget), blocks


def test_a_long_prompt_is_prefilled_in_chunks_of_the_budget() -> None:
    """A token is due only when the last chunk reaches the end of the prompt."""
    scheduler, _ = fixture(budget=8)
    sequence = make(list(range(20)))
    scheduler.add(sequence)
    sizes = [run_step(scheduler).prefill[0].num_tokens for _ in range(3)]
    assert sizes == [8, 8, 4]
    assert sequence.num_completion_tokens == 1
    assert run_step(scheduler).decode == [sequence]


def test_decoding_goes_before_prefill_in_a_mixed_step() -> None:
    """A running chat gets its token although a new prompt fills the rest of the budget."""
    scheduler, _ = fixture(budget=8)
    first, second = make([1, 2, 3]), make(list(range(10, 22)))
    scheduler.add(first)
    run_step(scheduler)
    scheduler.add(second)
    step = run_step(scheduler)
    assert step.decode == [first]
    assert [c.num_tokens for c in step.prefill] == [7]
    assert step.num_tokens == 8


def test_a_second_turn_finds_every_full_block_of_the_first() -> None:
    """Prompt and answer are shared by their ids; at least the last token is computed."""
    scheduler, blocks = fixture()
    first = make(list(range(10)))
    scheduler.add(first)
    for _ in range(5):
        run_step(scheduler)
    computed, ids = first.num_computed_tokens, list(first.token_ids)
    scheduler.remove(first)
    second = make([*ids[:computed], 90, 91])
    scheduler.add(second)
    run_step(scheduler)
    assert second.num_cached_tokens == computed // BLOCK * BLOCK == 12
    scheduler.remove(second)
    exact = make(ids[:8])
    scheduler.add(exact)
    run_step(scheduler)
    assert exact.num_cached_tokens == 4, "the last token must be computed for its logits"
    blocks.check_integrity()


def test_a_shared_block_outlives_its_first_owner() -> None:
    """Reference counts keep a prefix that another sequence still reads."""
    scheduler, blocks = fixture()
    first, second = make(list(range(9))), make([*range(8), 50])
    scheduler.add(first)
    run_step(scheduler)
    scheduler.add(second)
    run_step(scheduler)
    assert second.block_tables[0][:2] == first.block_tables[0][:2]
    scheduler.remove(first)
    blocks.check_integrity()
    assert blocks.num_free_blocks == 8 - len(second.block_tables[0])


def test_without_prefix_caching_nothing_is_found() -> None:
    """The switch that measuring needs."""
    scheduler, _ = fixture(prefix_caching=False)
    for _ in range(2):
        sequence = make(list(range(9)))
        scheduler.add(sequence)
        run_step(scheduler)
        assert sequence.num_cached_tokens == 0
        scheduler.remove(sequence)


def test_the_youngest_is_preempted_when_blocks_run_out() -> None:
    """The older chat goes on; the younger one waits in front and starts again."""
    scheduler, blocks = fixture(num_blocks=4, prefix_caching=False)
    old, young = make(list(range(8))), make(list(range(20, 28)))
    scheduler.add(old)
    scheduler.add(young)
    run_step(scheduler)
    step = run_step(scheduler)
    assert step.decode == [old]
    assert young.num_preemptions == 1
    assert young.num_computed_tokens == 0
    assert not young.block_tables
    scheduler.remove(old)
    step = run_step(scheduler)
    assert step.prefill[0].sequence is young
    assert step.prefill[0].num_tokens == 9, "prompt and answer so far are computed again"
    blocks.check_integrity()


def test_idle_chats_lose_their_blocks_before_anyone_is_preempted() -> None:
    """Running chats grow into what idle ones left behind; only then the youngest has to wait."""
    scheduler, blocks = fixture(num_blocks=8)
    idle = make(list(range(12)), name="idle")
    scheduler.add(idle)
    run_step(scheduler)
    names = list(idle.block_names)
    scheduler.remove(idle)
    old, young = make(list(range(20, 28)), name="old"), make(list(range(40, 48)), name="young")
    scheduler.add(old)
    scheduler.add(young)
    kept = []
    while not scheduler.num_preemptions:
        run_step(scheduler)
        kept.append(sum(map(blocks.pools[0].knows, names)))
    assert kept == sorted(kept, reverse=True)
    assert kept[0] == 3
    assert kept[-1] == 0
    assert young.num_preemptions == 1
    assert old.num_preemptions == 0


def test_a_lone_sequence_that_fills_the_pool_is_reported() -> None:
    """Nothing can be preempted for it: it has to end."""
    scheduler, _ = fixture(num_blocks=2)
    sequence = make(list(range(8)))
    scheduler.add(sequence)
    run_step(scheduler)
    assert scheduler.schedule().exhausted == [sequence]


@given(
    actions=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 18), st.integers(0, 2)),
            st.tuples(st.just("step"), st.integers(0, 3), st.just(0)),
            st.tuples(st.just("remove"), st.integers(0, 9), st.just(0)),
            st.tuples(st.just("restart"), st.integers(0, 9), st.just(0)),
        ),
        max_size=60,
    ),
    num_blocks=st.integers(5, 12),
    budget=st.integers(4, 20),
    windows=st.sampled_from([(), (3,), (5, 9), (40,)]),
)
@settings(max_examples=300, deadline=None)
def test_books_balance_after_any_history(
    actions: list[tuple[str, int, int]], num_blocks: int, budget: int, windows: tuple[int, ...]
) -> None:
    """Budgets hold, blocks are never shared wrongly, and all of them come back."""
    scheduler, blocks = fixture(num_blocks, max_num_seqs=3, budget=budget, windows=windows)
    free = [pool.num_free for pool in blocks.pools]
    live: list[Sequence] = []
    for kind, number, variant in actions:
        if kind == "add":
            live.append(make([variant * 100 + i for i in range(number)]))
            scheduler.add(live[-1])
        elif kind == "remove" and live:
            scheduler.remove(live.pop(number % len(live)))
        elif kind == "restart" and (running := [s for s in live if s.block_tables]):
            scheduler.restart(running[number % len(running)])
        elif kind == "step":
            step = run_step(scheduler, next_id=number)
            assert step.num_tokens <= budget
            ready = [s for s in live if s.is_decoding and s in scheduler.sequences]
            assert len(set(map(id, step.sequences))) == len(step.sequences)
            assert all(s in live for s in step.sequences + ready)
            for sequence in step.exhausted:
                scheduler.remove(sequence)
                live.remove(sequence)
            check_windows(step, windows)
        scheduler.check_integrity()
    for sequence in live:
        scheduler.remove(sequence)
    scheduler.check_integrity()
    assert [pool.num_free for pool in blocks.pools] == free
    assert not scheduler.sequences


def check_windows(step: ScheduledStep, windows: tuple[int, ...]) -> None:
    """Every token that the next one still looks at has a block, all before those have none."""
    for sequence in step.sequences:
        if not sequence.block_tables:
            continue
        computed = sequence.num_computed_tokens
        for table, window in zip(sequence.block_tables[1:], windows, strict=True):
            first = max(0, computed + 1 - window) // BLOCK
            assert set(table[:first]) <= {NULL_BLOCK}
            assert NULL_BLOCK not in table[first : -(-computed // BLOCK)]


def test_a_prefix_hit_needs_what_the_window_still_sees() -> None:
    """The end of a prefix is enough for a windowed group; without it the hit is shorter."""
    scheduler, blocks = fixture(16, budget=40, windows=(5,))
    first = make(list(range(30)))
    scheduler.add(first)
    run_step(scheduler)
    assert first.first_blocks == [0, 6]
    again = make([*range(28), 90, 91])
    scheduler.add(again)
    run_step(scheduler)
    assert again.num_cached_tokens == 28
    assert again.block_tables[1][:6] == [NULL_BLOCK] * 6
    assert again.block_tables[0][:7] == first.block_tables[0][:7]
    windowed = blocks.pools[1]
    for name in again.block_names[4:7]:
        windowed._forget(windowed._by_hash[name])
    third = make([*range(28), 70, 71])
    scheduler.add(third)
    run_step(scheduler)
    assert third.num_cached_tokens == 16
    blocks.check_integrity()


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=5),
    st.integers(8, 12),
    st.sampled_from([(), (4,), (6, 11)]),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_everyone_finishes(
    lengths: list[int], num_blocks: int, windows: tuple[int, ...], restarts: bool
) -> None:
    """Whatever is preempted or begun again, each sequence that fits alone gets all its tokens."""
    scheduler, blocks = fixture(num_blocks, max_num_seqs=4, budget=8, windows=windows)
    free = [pool.num_free for pool in blocks.pools]
    sequences = [make([i * 50 + j for j in range(n)], name=str(i)) for i, n in enumerate(lengths)]
    for sequence in sequences:
        scheduler.add(sequence)
    for _ in range(500):
        before = {id(s): s.num_completion_tokens for s in sequences}
        step = run_step(scheduler)
        for sequence in step.sequences:
            if sequence.num_completion_tokens >= 3:
                scheduler.remove(sequence)
            elif restarts and sequence.num_completion_tokens > before[id(sequence)]:
                scheduler.restart(sequence)
        for sequence in step.exhausted:
            assert blocks.blocks_for(len(sequence.token_ids)) > num_blocks
            scheduler.remove(sequence)
        if not scheduler.sequences:
            break
    assert not scheduler.sequences, "someone starved"
    assert [pool.num_free for pool in blocks.pools] == free
