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

#include "linear_dense.h"
#include "small_ops.h"

#define SPANS 16 /* into which a context is cut: enough for all threads to end together */
#define SHORTEST_SPAN 64 /* tokens; shorter ones are not worth their partial results */
#define SPAN 256         /* tokens; longer ones would have more scores than the nearest cache holds */
#define HEAD_PACK 3   /* query heads treated at once: with 4 tokens each, 12 sums in registers */
#define TOKEN_PACK 4
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

/* Where the entries of each token of a span begin, in elements from the cache's start. */
INLINE void locate(const ps_attention_decode *op, int64_t row, int64_t first, int count,
                   int64_t *offsets) {
    const int64_t *table = op->block_tables + row * op->table_width;
    const int64_t stride = (int64_t)op->num_kv_heads * op->head_dim;
    const int size = op->block_size;
    int64_t block = first / size; /* divided once: a division a token costs more than its dot */
    int within = (int)(first % size);
    for (int t = 0; t < count; block++, within = 0) {
        int64_t offset = (table[block] * size + within) * stride;
        for (; within < size && t < count; within++, t++, offset += stride) offsets[t] = offset;
    }
}

/* All heads of a token. The processor's own foresight ends with each page. */
INLINE void ask_for(const ps_attention_decode *op, const void *cache, int64_t offset) {
    const int width = op->kv_format == PS_FP32 ? 4 : 2;
    const char *entry = (const char *)cache + offset * width;
    const int64_t bytes = (int64_t)op->num_kv_heads * op->head_dim * width;
    for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(entry + byte);
}

/* scores[h][t] = scale * q[h] . key[t] for H heads and T tokens of one key head. */
INLINE void score_tokens(int H, int T, int format, const ps_attention_decode *op, const float *q,
                         const int64_t *offsets, int64_t head_offset, float *scores) {
    const int dim = op->head_dim, whole = dim / VF_LANES * VF_LANES;
    vf dots[HEAD_PACK][TOKEN_PACK];
    UNROLL for (int h = 0; h < H; h++)
        UNROLL for (int t = 0; t < TOKEN_PACK; t++) dots[h][t] = vf_zero();
    for (int d = 0; d < whole; d += VF_LANES) {
        UNROLL for (int t = 0; t < T; t++) {
            vf key = load_as_float(format, op->k_cache, offsets[t] + head_offset + d);
            UNROLL for (int h = 0; h < H; h++)
                dots[h][t] = vf_fma(key, vf_load(q + h * dim + d), dots[h][t]);
        }
    }
    UNROLL for (int h = 0; h < H; h++) {
        float sums[TOKEN_PACK];
        vf_sum4(dots[h], sums);
        UNROLL for (int t = 0; t < T; t++) {
            for (int d = whole; d < dim; d++)
                sums[t] += q[h * dim + d] *
                           scalar_as_float(format, op->k_cache, offsets[t] + head_offset + d);
            scores[h * SPAN + t] = sums[t] * op->scale;
        }
    }
}

/* values[h] += weights[h][t] * value[t] for H heads and T tokens of one key head. */
INLINE void add_values(int H, int T, int format, const ps_attention_decode *op,
                       const float *weights, const int64_t *offsets, int64_t head_offset,
                       float *values, int64_t stride) {
    const int dim = op->head_dim, whole = dim / VF_LANES * VF_LANES;
    vf shares[HEAD_PACK][TOKEN_PACK];
    UNROLL for (int h = 0; h < H; h++)
        UNROLL for (int t = 0; t < T; t++) shares[h][t] = vf_set(weights[h * SPAN + t]);
    for (int d = 0; d < whole; d += VF_LANES) {
        vf sums[HEAD_PACK];
        UNROLL for (int h = 0; h < H; h++) sums[h] = vf_load(values + h * stride + d);
        UNROLL for (int t = 0; t < T; t++) {
            vf value = load_as_float(format, op->v_cache, offsets[t] + head_offset + d);
            UNROLL for (int h = 0; h < H; h++)
                sums[h] = vf_fma(shares[h][t], value, sums[h]);
        }
        UNROLL for (int h = 0; h < H; h++) vf_store(values + h * stride + d, sums[h]);
    }
    for (int d = whole; d < dim; d++)
        UNROLL for (int h = 0; h < H; h++)
            UNROLL for (int t = 0; t < T; t++)
                values[h * stride + d] +=
                    weights[h * SPAN + t] *
                    scalar_as_float(format, op->v_cache, offsets[t] + head_offset + d);
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

INLINE void score_pack(int T, int format, const ps_attention_decode *op, int heads, const float *q,
                       const int64_t *offsets, int64_t head_offset, float *scores) {
    if (heads == 1) score_tokens(1, T, format, op, q, offsets, head_offset, scores);
    else if (heads == 2) score_tokens(2, T, format, op, q, offsets, head_offset, scores);
    else score_tokens(3, T, format, op, q, offsets, head_offset, scores);
}

INLINE void value_pack(int T, int format, const ps_attention_decode *op, int heads,
                       const float *weights, const int64_t *offsets, int64_t head_offset,
                       float *values, int64_t stride) {
    if (heads == 1) add_values(1, T, format, op, weights, offsets, head_offset, values, stride);
    else if (heads == 2) add_values(2, T, format, op, weights, offsets, head_offset, values, stride);
    else add_values(3, T, format, op, weights, offsets, head_offset, values, stride);
}

INLINE void attend_item(int format, const ps_attention_decode *op, int64_t row, int64_t span,
                        float *partial) {
    const int group = op->num_heads / op->num_kv_heads, dim = op->head_dim;
    const int length = span_of(seen_by(op, row));
    const int64_t first = first_seen(op, row) + span * length, stride = 2 + dim;
    const int64_t left = op->context_lens[row] - first;
    const int count = (int)(left < length ? left : length);
    const int known = (int)(left < length + AHEAD ? left : length + AHEAD);
    const float *q = op->q + row * op->num_heads * dim;
    float scores[op->num_heads * SPAN];
    int64_t offsets[SPAN + AHEAD];
    locate(op, row, first, known, offsets);
    for (int t = 0; t < count; t += count - t < TOKEN_PACK ? 1 : TOKEN_PACK) {
        for (int i = t + AHEAD; i < t + AHEAD + TOKEN_PACK && i < known; i++)
            ask_for(op, op->k_cache, offsets[i]);
        for (int head = 0; head < op->num_heads;) {
            int in_group = group - head % group, heads = in_group < HEAD_PACK ? in_group : HEAD_PACK;
            int64_t place = (int64_t)(head / group) * dim;
            float *to = scores + head * SPAN + t;
            if (count - t >= TOKEN_PACK)
                score_pack(TOKEN_PACK, format, op, heads, q + head * dim, offsets + t, place, to);
            else score_pack(1, format, op, heads, q + head * dim, offsets + t, place, to);
            head += heads;
        }
    }
    for (int head = 0; head < op->num_heads; head++) {
        float *to = partial + head * stride;
        if (op->softcap > 0.0f) cap_scores(scores + head * SPAN, count, op->softcap);
        weigh(scores + head * SPAN, count, to, to + 1);
        memset(to + 2, 0, (size_t)dim * 4);
    }
    for (int t = 0; t < count; t += count - t < TOKEN_PACK ? 1 : TOKEN_PACK) {
        for (int i = t + AHEAD; i < t + AHEAD + TOKEN_PACK && i < known; i++)
            ask_for(op, op->v_cache, offsets[i]);
        for (int head = 0; head < op->num_heads;) {
            int in_group = group - head % group, heads = in_group < HEAD_PACK ? in_group : HEAD_PACK;
            int64_t place = (int64_t)(head / group) * dim;
            const float *weights = scores + head * SPAN + t;
            float *to = partial + head * stride + 2;
            if (count - t >= TOKEN_PACK)
                value_pack(TOKEN_PACK, format, op, heads, weights, offsets + t, place, to, stride);
            else value_pack(1, format, op, heads, weights, offsets + t, place, to, stride);
            head += heads;
        }
    }
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
            if (op->kv_format == PS_FP32) attend_item(PS_FP32, op, row, span, to);
            else if (op->kv_format == PS_BF16) attend_item(PS_BF16, op, row, span, to);
            else attend_item(PS_FP16, op, row, span, to);
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
