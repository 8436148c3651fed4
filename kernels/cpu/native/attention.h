/* Decode attention over paged blocks: one query a row, query heads that share a key head together,
 * so that keys and values are read once (GQA, arXiv 2305.13245).
 *
 * The context is cut into spans of tokens. Each (row, span) is an item for one thread, which goes
 * through the cache in the order it lies in memory, all heads of a token together; for each query
 * head it leaves the maximum m, the sum l and the weighted values a.
 * Spans are merged as in online softmax (arXiv 1805.02867, 2205.14135). The cut depends on the
 * context alone, so a row's result does not depend on threads or on other rows.
 *
 * A window leaves out all but the last keys; spans are cut from what a row sees.
 *
 * `partial` is [rows, spans, Hq, 2 + D] floats: m, l, a.
 */
#ifndef PS_ATTENTION_H
#define PS_ATTENTION_H

#include "attention_packs.h"

#define SPANS 16 /* into which a context is cut: enough for all threads to end together */
#define SHORTEST_SPAN 64 /* tokens; shorter ones are not worth their partial results */
#define AHEAD 8       /* tokens whose entries are asked for before they are needed */

INLINE int span_of(int64_t context_len) {
    int64_t length = (context_len + SPANS - 1) / SPANS;
    length = (length + TOKEN_PACK - 1) / TOKEN_PACK * TOKEN_PACK;
    return length < SHORTEST_SPAN ? SHORTEST_SPAN : length < SPAN ? (int)length : SPAN;
}

INLINE int64_t spans_of(int64_t context_len) {
    return (context_len + span_of(context_len) - 1) / span_of(context_len);
}

/* Spans of any context up to this one: room for partial results. */
INLINE int64_t max_spans_of(int64_t context_len) {
    const int64_t spans = (context_len + SPAN - 1) / SPAN;
    return spans > SPANS ? spans : SPANS;
}

/* Keys that a row sees, and the first of them. */
INLINE int64_t seen_by(const ps_attention_decode *op, int64_t row) {
    const int64_t length = op->context_lens[row];
    return op->window > 0 && length > op->window ? op->window : length;
}

INLINE int64_t first_seen(const ps_attention_decode *op, int64_t row) {
    return op->context_lens[row] - seen_by(op, row);
}

/* Where the entries of each token of a span begin, in bytes from the cache's start. */
INLINE void locate(const ps_attention_decode *op, int64_t row, int64_t first, int count,
                   int64_t stride, int64_t *offsets) {
    const int64_t *table = op->block_tables + row * op->table_width;
    const int size = op->block_size;
    int64_t block = first / size; /* divided once: a division a token costs more than its dot */
    int within = (int)(first % size);
    for (int t = 0; t < count; block++, within = 0) {
        int64_t offset = (table[block] * size + within) * stride;
        for (; within < size && t < count; within++, t++, offset += stride) offsets[t] = offset;
    }
}

/* All heads of a token. The processor's own foresight ends with each page. */
INLINE void ask_for(const uint8_t *entry, int64_t bytes) {
    for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(entry + byte);
}

/* A span has room for whole vectors. */
static void cap_scores(float *scores, int count, float cap) {
    for (int t = 0; t < count; t += VF_LANES)
        vf_store(scores + t, vf_soft_cap(vf_load(scores + t), cap));
}

/* Scores of one head to softmax weights, in place; leaves the maximum and the sum. */
static void weigh(float *scores, int count, float *largest, float *sum) {
    vf top = vf_set(-INFINITY), total = vf_zero();
    const int whole = (count + VF_LANES - 1) / VF_LANES * VF_LANES;
    for (int t = count; t < whole; t++) scores[t] = -INFINITY;
    for (int t = 0; t < whole; t += VF_LANES) top = vf_max(top, vf_load(scores + t));
    *largest = vf_max_lane(top);
    for (int t = 0; t < whole; t += VF_LANES)
        vf_store(scores + t, vf_exp(vf_sub(vf_load(scores + t), vf_set(*largest))));
    for (int t = count; t < whole; t++) scores[t] = 0.0f;
    for (int t = 0; t < whole; t += VF_LANES) total = vf_add(total, vf_load(scores + t));
    *sum = vf_sum(total);
}

/* What a span of one row is worked on with. */
typedef struct {
    const ps_attention_decode *op;
    const float *q; /* the row's, [Hq, D] */
    ps_query rounded;
    const float *base;
    float *scores; /* [Hq, SPAN] */
    float *values;  /* [Hq], each 2 + D floats apart */
    float *offsets; /* [Hq, groups, TOKEN_PACK]: what the values' offsets add */
} ps_span;

typedef enum { SCORE_DENSE, SCORE_INT8, SCORE_CHANNELS, ADD_DENSE, ADD_INT8, ADD_INT4 } ps_work;

/* T tokens from the span's `t` on, `heads` query heads of one key head. */
INLINE void work_on(int H, int T, ps_work work, int format, const ps_span *span, int head, int t,
                    ps_tokens tokens) {
    const ps_attention_decode *op = span->op;
    const int dim = op->head_dim, groups = dim / op->k_cache.group_size;
    const int64_t stride = 2 + dim;
    float *scores = span->scores + head * SPAN + t, *values = span->values + head * stride;
    float *offsets = span->offsets + head * (dim / op->v_cache.group_size) * TOKEN_PACK;
    ps_query q = span->rounded;
    switch (work) {
    case SCORE_DENSE: score_dense(H, T, format, op, span->q + head * dim, tokens, scores); break;
    case SCORE_INT8:
        q.codes += head * dim;
        q.scales += head * groups;
        q.sums += head * groups;
        score_int8(H, T, op, q, tokens, scores);
        break;
    case SCORE_CHANNELS:
        score_channels(H, T, op, span->q + head * dim, span->base + head, tokens, scores);
        break;
    case ADD_DENSE: add_dense(H, T, format, op, scores, tokens, values, stride); break;
    case ADD_INT8: add_groups(H, T, 8, op, scores, tokens, values, stride, offsets); break;
    case ADD_INT4: add_groups(H, T, 4, op, scores, tokens, values, stride, offsets); break;
    }
}

INLINE void work_on_heads(int T, ps_work work, int format, const ps_span *span, int head, int heads,
                          int t, ps_tokens tokens) {
    if (heads == 1) work_on(1, T, work, format, span, head, t, tokens);
    else if (heads == 2) work_on(2, T, work, format, span, head, t, tokens);
    else if (heads == 3) work_on(3, T, work, format, span, head, t, tokens);
    else work_on(HEAD_PACK, T, work, format, span, head, t, tokens);
}

/* Heads to work on at once of so many that are left: packs as equal as can be. */
INLINE int heads_of(int left) {
    const int packs = (left + HEAD_PACK - 1) / HEAD_PACK;
    return (left + packs - 1) / packs;
}

/* All heads over `count` tokens of a span from its `begin` on, in the order they lie in memory. The
 * entries of all heads of a token begin at `offsets`, which go on for `known` tokens, and a head's
 * `entry_bytes` apart. */
INLINE void go_through(ps_work work, int format, const ps_span *span, int begin, int count,
                       int known, const void *data, const int64_t *offsets, int64_t entry_bytes) {
    const ps_attention_decode *op = span->op;
    const int group = op->num_heads / op->num_kv_heads;
    const int64_t all_heads = op->num_kv_heads * entry_bytes;
    for (int t = 0; t < count; t += count - t < TOKEN_PACK ? 1 : TOKEN_PACK) {
        const int pack = count - t < TOKEN_PACK ? 1 : TOKEN_PACK;
        for (int i = t + AHEAD; i < t + AHEAD + TOKEN_PACK && i < known; i++)
            ask_for((const uint8_t *)data + offsets[i], all_heads);
        for (int head = 0; head < op->num_heads;) {
            const int heads = heads_of(group - head % group);
            ps_tokens tokens = {{0}};
            for (int i = 0; i < pack; i++)
                tokens.entry[i] =
                    (const uint8_t *)data + offsets[t + i] + head / group * entry_bytes;
            if (pack == TOKEN_PACK)
                work_on_heads(TOKEN_PACK, work, format, span, head, heads, begin + t, tokens);
            else work_on_heads(1, work, format, span, head, heads, begin + t, tokens);
            head += heads;
        }
    }
}

/* Scores over one full block by channel: the keys' scales go into the queries, once a block. */
static void score_block(const ps_span *span, int begin, int count, int64_t block, int within) {
    const ps_attention_decode *op = span->op;
    const int dim = op->head_dim, size = op->block_size, group = op->num_heads / op->num_kv_heads;
    const int64_t entry_bytes = channel_entry_bytes(size, dim);
    const uint8_t *data =
        (const uint8_t *)op->k_cache.data + block * op->num_kv_heads * entry_bytes;
    float scaled[op->num_heads * dim], base[op->num_heads];
    for (int kv_head = 0; kv_head < op->num_kv_heads; kv_head++) {
        const uint16_t *scales = (const uint16_t *)(data + kv_head * entry_bytes + size * dim / 2);
        vf sums[group];
        for (int h = 0; h < group; h++) sums[h] = vf_zero();
        for (int d = 0; d < dim; d += VF_LANES) {
            vf scale = vf_from_fp16(scales + d), offset = vf_from_fp16(scales + dim + d);
            for (int h = 0; h < group; h++) {
                const int64_t at = (kv_head * group + h) * dim + d;
                vf x = vf_load(span->q + at);
                sums[h] = vf_fma(x, offset, sums[h]);
                vf_store(scaled + at, vf_mul(x, scale));
            }
        }
        for (int h = 0; h < group; h++) base[kv_head * group + h] = vf_sum(sums[h]);
    }
    ps_span with_scales = *span;
    with_scales.q = scaled;
    with_scales.base = base;
    int64_t offsets[SPAN];
    for (int t = 0; t < count; t++) offsets[t] = (int64_t)(within + t) * dim / 2;
    go_through(SCORE_CHANNELS, 0, &with_scales, begin, count, 0, data, offsets, entry_bytes);
}

/* Scores over keys by channel, block by block; the newest block is in the row's tail. */
static void score_blocks(const ps_span *span, int64_t row, int64_t first, int count) {
    const ps_attention_decode *op = span->op;
    const int size = op->block_size, dim = op->head_dim;
    const int64_t newest = (op->context_lens[row] - 1) / size;
    for (int t = 0; t < count;) {
        const int64_t block = (first + t) / size;
        const int within = (int)((first + t) % size);
        const int tokens = size - within < count - t ? size - within : count - t;
        if (block == newest) {
            int64_t offsets[SPAN];
            for (int i = 0; i < tokens; i++)
                offsets[i] =
                    (op->tails[row] * size + within + i) * op->num_kv_heads * dim * 2;
            go_through(SCORE_DENSE, PS_BF16, span, t, tokens, 0, op->k_cache.tails, offsets, dim * 2);
        } else {
            score_block(span, t, tokens, op->block_tables[row * op->table_width + block], within);
        }
        t += tokens;
    }
}

/* A span's entries of a format that is no code. */
INLINE void go_through_dense(ps_work work, const ps_span *span, const ps_kv *kv, int count, int known,
                             const int64_t *offsets, int64_t entry_bytes) {
    if (kv->format == PS_FP32)
        go_through(work, PS_FP32, span, 0, count, known, kv->data, offsets, entry_bytes);
    else if (kv->format == PS_BF16)
        go_through(work, PS_BF16, span, 0, count, known, kv->data, offsets, entry_bytes);
    else go_through(work, PS_FP16, span, 0, count, known, kv->data, offsets, entry_bytes);
}

static void score_span(const ps_span *span, int64_t row, int64_t first, int count, int known) {
    const ps_attention_decode *op = span->op;
    const ps_kv *k = &op->k_cache;
    const int dim = op->head_dim;
    if (k->format == PS_INT4_CHANNEL) {
        score_blocks(span, row, first, count);
        return;
    }
    int64_t offsets[SPAN + AHEAD];
    const int64_t stride = token_stride(k, op->num_kv_heads, dim), head = stride / op->num_kv_heads;
    locate(op, row, first, known, stride, offsets);
    if (k->format == PS_INT8)
        go_through(SCORE_INT8, 0, span, 0, count, known, k->data, offsets, head);
    else go_through_dense(SCORE_DENSE, span, k, count, known, offsets, head);
}

/* What the values' offsets add, once a span: the same for all dims of a group. */
static void add_offsets(const ps_span *span) {
    const int dim = span->op->head_dim, size = span->op->v_cache.group_size, groups = dim / size;
    for (int i = 0; i < span->op->num_heads * groups; i++) {
        f4 sums = f4_load(span->offsets + i * TOKEN_PACK);
        vf offset = vf_set(sums[0] + sums[1] + sums[2] + sums[3]);
        float *to = span->values + i / groups * (2 + dim) + i % groups * size;
        for (int d = 0; d < size; d += VF_LANES) vf_store(to + d, vf_add(vf_load(to + d), offset));
    }
}

static void add_span(const ps_span *span, int64_t row, int64_t first, int count, int known) {
    const ps_attention_decode *op = span->op;
    const ps_kv *v = &op->v_cache;
    int64_t offsets[SPAN + AHEAD];
    const int64_t stride = token_stride(v, op->num_kv_heads, op->head_dim);
    const int64_t head = stride / op->num_kv_heads;
    locate(op, row, first, known, stride, offsets);
    if (v->format == PS_INT8)
        go_through(ADD_INT8, 0, span, 0, count, known, v->data, offsets, head);
    else if (v->format == PS_INT4)
        go_through(ADD_INT4, 0, span, 0, count, known, v->data, offsets, head);
    else go_through_dense(ADD_DENSE, span, v, count, known, offsets, head);
    if (v->format >= PS_INT8) add_offsets(span);
}

static void attend_item(const ps_attention_decode *op, int64_t row, int64_t number, float *partial) {
    const int dim = op->head_dim, length = span_of(seen_by(op, row));
    const int64_t first = first_seen(op, row) + number * length, stride = 2 + dim;
    const int64_t left = op->context_lens[row] - first;
    const int count = (int)(left < length ? left : length);
    const int known = (int)(left < length + AHEAD ? left : length + AHEAD);
    const int is_rounded = op->k_cache.format == PS_INT8;
    const int64_t groups = (int64_t)op->num_heads * dim / op->k_cache.group_size;
    float scores[op->num_heads * SPAN], scales[groups], sums[groups];
    int16_t codes[is_rounded ? op->num_heads * dim : 1];
    float offsets[op->num_heads * (dim / op->v_cache.group_size) * TOKEN_PACK];
    memset(offsets, 0, sizeof offsets);
    ps_span span = {op, op->q + row * op->num_heads * dim, {codes, scales, sums}, 0, scores,
                    partial + 2, offsets};
    if (is_rounded) round_query(span.q, groups, op->k_cache.group_size, &span.rounded);
    score_span(&span, row, first, count, known);
    for (int head = 0; head < op->num_heads; head++) {
        float *to = partial + head * stride;
        if (op->softcap > 0.0f) cap_scores(scores + head * SPAN, count, op->softcap);
        weigh(scores + head * SPAN, count, to, to + 1);
        memset(to + 2, 0, (size_t)dim * 4);
    }
    add_span(&span, row, first, count, known);
}

/* Spans of one head into its output. */
static void merge_spans(const float *partial, int64_t spans, int64_t stride, int dim, float *out) {
    float largest = -INFINITY, total = 0.0f;
    for (int64_t s = 0; s < spans; s++)
        largest = partial[s * stride] > largest ? partial[s * stride] : largest;
    memset(out, 0, (size_t)dim * 4);
    for (int64_t s = 0; s < spans; s++) {
        const float *one = partial + s * stride;
        float weight = expf(one[0] - largest);
        total += weight * one[1];
        for (int d = 0; d < dim; d++) out[d] += weight * one[2 + d];
    }
    for (int d = 0; d < dim; d++) out[d] /= total;
}

/* Items are (row, span), in order. */
static int64_t attention_items(const ps_attention_decode *op) {
    int64_t items = 0;
    for (int64_t row = 0; row < op->rows; row++) items += spans_of(seen_by(op, row));
    return items;
}

INLINE float *partial_of(const ps_attention_decode *op, int64_t row, int64_t span) {
    int64_t spans = max_spans_of(op->table_width * op->block_size);
    return op->partial + (row * spans + span) * op->num_heads * (2 + op->head_dim);
}

static void attention_spans(const ps_attention_decode *op, int64_t begin, int64_t end) {
    for (int64_t row = 0, first = 0; row < op->rows && first < end; row++) {
        int64_t last = first + spans_of(seen_by(op, row));
        for (int64_t item = begin > first ? begin : first; item < end && item < last; item++) {
            int64_t span = item - first;
            float *to = partial_of(op, row, span);
            attend_item(op, row, span, to);
        }
        first = last;
    }
}

/* Items are heads of rows. */
static void attention_merge(const ps_attention_decode *op, int64_t begin, int64_t end) {
    const int dim = op->head_dim;
    const int64_t span_floats = (int64_t)op->num_heads * (2 + dim);
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / op->num_heads, head = i % op->num_heads;
        merge_spans(partial_of(op, row, 0) + head * (2 + dim), spans_of(seen_by(op, row)),
                    span_floats, dim, op->out + i * dim);
    }
}

#endif
