"""Everything the overlay says, in both of its languages side by side.

A table of its own, not translations: the language is chosen in the card, whatever the window's is.
`{names}` are filled in by `explanation.py` and `card.py`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Language = Literal["en", "zh"]


class Words(NamedTuple):
    """The same in English and in simplified Chinese."""

    en: str
    zh: str


TEXTS: dict[str, Words] = {
    # --- the card -----------------------------------------------------------------------------
    "place": Words("{step} of {steps}", "{step} / {steps}"),
    "back": Words("Back", "上一步"),
    "next": Words("Next", "下一步"),
    "follow": Words("Follow live", "跟随进度"),
    "close": Words("Close the explanations", "关闭讲解"),
    "card": Words("What happens", "正在发生什么"),
    "offer": Words(
        "New to this? Explain what happens, step by step", "第一次接触？逐步讲解推理过程"
    ),
    "welcome_title": Words("What happens in an answer", "一次回答的过程"),
    "welcome": Words(
        "Send a message. Six steps then tell, with the figures of your own answer, how text "
        "becomes tokens, fills the cache and comes back as text.",
        "发送一条消息，随后将用这次回答的真实数据分六步讲解：文本如何变成词元、如何填充缓存，"
        "又如何变回文本。",
    ),
    # --- 1 tokenize ---------------------------------------------------------------------------
    "tokenize_title": Words("Tokenize: text becomes numbers", "分词：文本变成数字"),
    "tokenize_waiting": Words(
        "Your message, with the chat so far and the template's marks around it, is cut into "
        "tokens: pieces of text that each have a number.",
        "你的消息连同之前的对话和模板标记，正在被切分成词元：每个词元是一小段文本，对应一个编号。",
    ),
    "tokenize": Words(
        "Your message, with the chat so far and the template's marks, became {prompt} tokens: "
        "pieces of text that each have a number.",
        "你的消息连同之前的对话和模板标记，变成了 {prompt} 个词元：每个词元是一小段文本，"
        "对应一个编号。",
    ),
    "tokenize_vocabulary": Words(
        "This model knows {vocab} of them.", "这个模型的词表共有 {vocab} 个词元。"
    ),
    "tokenize_queue": Words(
        "Cutting it up and waiting for a turn took {queue}.", "分词和排队共用了 {queue}。"
    ),
    "tokenize_cut": Words(
        "{dropped} older tokens did not fit into the context and were left out.",
        "较早的 {dropped} 个词元放不进上下文，已被舍去。",
    ),
    # --- 2 embed ------------------------------------------------------------------------------
    "embed_title": Words("Embed: numbers become vectors", "嵌入：编号变成向量"),
    "embed": Words(
        "Each token's number picks one row of the embedding table. That is a look-up, not a "
        "matrix product, so it takes almost no time.",
        "每个词元的编号从嵌入表中取出一行。这只是查表，不是矩阵乘法，几乎不花时间。",
    ),
    "embed_sizes": Words(
        "Here {computed} rows of {hidden} numbers each were needed, out of {vocab}.",
        "这里从 {vocab} 行中取出 {computed} 行，每行 {hidden} 个数。",
    ),
    "embed_layers": Words(
        "These vectors now go through {layers} layers.", "这些向量接着要经过 {layers} 层。"
    ),
    # --- 3 prefill ----------------------------------------------------------------------------
    "prefill_title": Words("Prefill: the prompt fills the cache", "预填充：提示词填入缓存"),
    "prefill_running": Words(
        "{done} of {prompt} prompt tokens are in the KV cache.",
        "{prompt} 个提示词元中，已有 {done} 个进入 KV 缓存。",
    ),
    "prefill_one": Words(
        "Prefill: {computed} tokens at once, {time}.",
        "预填充：一次算完 {computed} 个词元，用时 {time}。",
    ),
    "prefill_chunks": Words(
        "Prefill: {computed} tokens in {chunks} chunks, {time}.",
        "预填充：{computed} 个词元分 {chunks} 块算完，用时 {time}。",
    ),
    "prefill_unwatched": Words(
        "Prefill: {computed} tokens, {time}.", "预填充：{computed} 个词元，用时 {time}。"
    ),
    "prefill_cached": Words(
        "{cached} of {prompt} tokens were found in the cache, kept from a prompt that began alike; "
        "they were not computed again.",
        "{prompt} 个词元中有 {cached} 个已在缓存中（来自开头相同的提示词），无需重新计算。",
    ),
    "prefill_parallel": Words(
        "Tokens that are computed together share each weight that is read, so with a long prompt "
        "arithmetic, not memory, sets the pace.",
        "一起计算的词元共用每次读到的权重，因此提示词较长时，速度取决于算力，而不是内存。",
    ),
    "prefill_cache": Words(
        "Every layer keeps a key and a value of each token it may look back at: the cache then "
        "holds {kv}.",
        "每一层为之后还要回看的每个词元保存一个键和一个值：此时缓存共 {kv}。",
    ),
    # --- 4 first token ------------------------------------------------------------------------
    "first_title": Words("First token: the wait is over", "首词元：等待结束"),
    "first": Words(
        "Only the vector at the prompt's last position is needed: it becomes a score for each "
        "token of the vocabulary (the logits), and sampling picks one.",
        "只需要提示词最后一个位置的向量：由它算出词表中每个词元的得分（logits），再通过采样选出一个。",
    ),
    "first_ttft": Words(
        "First token after {ttft} (TTFT): {queue} before the first chunk, {prefill} of prefill.",
        "首词元延迟（TTFT）{ttft}：其中开始前 {queue}，预填充 {prefill}。",
    ),
    "first_ttft_only": Words("First token after {ttft} (TTFT).", "首词元延迟（TTFT）{ttft}。"),
    "first_none": Words(
        "Here it was the one that ends the answer, so there is no text.",
        "这次选中的是结束标记，所以没有文本。",
    ),
    # --- 5 decode -----------------------------------------------------------------------------
    "decode_title": Words("Decode: one token a step", "解码：每步一个词元"),
    "decode": Words(
        "The newest token goes through all layers, its key and value join the cache, and the next "
        "token is sampled.",
        "最新的词元经过所有层，它的键和值加入缓存，然后采样得到下一个词元。",
    ),
    "decode_split": Words(
        "Token {token}: read {weights} of weights, {kv} of cache in {time} = {rate}.",
        "第 {token} 个词元：{time} 内读取权重 {weights}、缓存 {kv}，即 {rate}。",
    ),
    "decode_whole": Words(
        "Token {token}: {bytes} in {time} = {rate}.",
        "第 {token} 个词元：{time} 内 {bytes}，即 {rate}。",
    ),
    "decode_shared": Words(
        "Token {token}: {bytes} in {time} = {rate}, a step for {seqs} answers at once that "
        "read the weights once.",
        "第 {token} 个词元：{time} 内 {bytes}，即 {rate}；"
        "这一步同时服务 {seqs} 个回答，权重只读一次。",
    ),
    "decode_mixed": Words(
        "Token {token}: {bytes} in {time} = {rate}; the step also read a part of another prompt.",
        "第 {token} 个词元：{time} 内 {bytes}，即 {rate}；这一步还处理了另一个提示词的一部分。",
    ),
    "decode_why": Words(
        "So many bytes for one token's arithmetic: the memory's speed usually sets the pace. "
        "Token to token (ITL) took {itl}.",
        "为一个词元的少量计算要读这么多字节，速度通常取决于内存带宽。词元间延迟（ITL）为 {itl}。",
    ),
    "decode_slid": Words(
        "The context was full before token {token}: the model went on with its first {first} and "
        "latest {last} tokens, computed anew.",
        "在第 {token} 个词元之前上下文已满："
        "模型保留最前 {first} 个和最近 {last} 个词元，重新计算后继续。",
    ),
    # --- 6 detokenize -------------------------------------------------------------------------
    "detokenize_title": Words("Detokenize: tokens become text", "还原：词元变回文本"),
    "detokenize": Words(
        "Each token stands for some bytes. They are shown once they make whole characters that "
        "cannot change any more.",
        "每个词元对应若干字节，凑成不会再变的完整字符后才显示出来。",
    ),
    "detokenize_holding": Words(
        "The bytes of token {token} gave no text yet and are held back, usually because they do "
        "not make a whole character.",
        "第 {token} 个词元的字节还没有产生文本，暂时保留，通常是因为还不够一个完整的字符。",
    ),
    "detokenize_held": Words(
        "The bytes of token {token} gave no text when they came and were held back, usually "
        "because they did not make a whole character; held back so far: {held}.",
        "第 {token} 个词元的字节到来时没有产生文本，曾被保留，通常是因为不够一个完整的字符；"
        "至今共保留 {held} 次。",
    ),
    "detokenize_all": Words(
        "All {tokens} tokens so far gave text at once.",
        "目前的 {tokens} 个词元都立即产生了文本。",
    ),
    # --- how it ended -------------------------------------------------------------------------
    "end_stop": Words(
        "After {tokens} tokens the answer was complete.", "生成 {tokens} 个词元后，回答完整结束。"
    ),
    "end_length": Words(
        "It ended after {tokens} tokens, as many as were allowed.",
        "生成 {tokens} 个词元后结束，已达到允许的长度。",
    ),
    "end_context_full": Words(
        "It ended after {tokens} tokens: the context was full.",
        "生成 {tokens} 个词元后结束：上下文已满。",
    ),
    "end_cancelled": Words("It was stopped here.", "在这里被停止。"),
    "end_failed": Words(
        "The request failed here; nothing more was computed.", "请求在这里失败，没有继续计算。"
    ),
}


def say(key: str, language: Language, **figures: str) -> str:
    """A text with its figures. Raises KeyError for an unknown key or a figure that is missing."""
    return getattr(TEXTS[key], language).format(**figures)  # type: ignore[no-any-return]
