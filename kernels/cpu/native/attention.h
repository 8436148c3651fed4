/* Decode attention over paged blocks: one query a row, query heads that share a key head together,
 * so that keys and values are read once (GQA, arXiv 2305.13245).
 *
 * The context is cut into spans of a fixed number of tokens. Each (row, key head, span) is an item
 * for one thread and leaves its maximum m, sum l and weighted values a; spans are merged as in
 * online softmax (arXiv 1805.02867, 2205.14135). The cut depends on the context alone, so a row's
 * result does not depend on threads or on other rows.
 *
 * `partial` is [rows, Hk, spans, group, 2 + D] floats: m, l, a.
 */
#ifndef PS_ATTENTION_H
#define PS_ATTENTION_H

#include "linear_dense.h"
#include "small_ops.h"

#define SPAN 128    /* tokens of one item */
#define HEAD_PACK 4 /* query heads treated at once */

INLINE int64_t spans_of(int64_t context_len) { return (context_len + SPAN - 1) / SPAN; }

/* Where the keys (and values) of each token of a span lie, in elements from the cache's start. */
INLINE void locate(const ps_attention_decode *op, int64_t row, int kv_head, int64_t first, int count,
                   int64_t *offsets) {
    const int64_t *table = op->block_tables + row * op->table_width;
    for (int t = 0; t < count; t++) {
        int64_t position = first + t, size = op->block_size;
        int64_t slot = table[position / size] * size + position % size;
        offsets[t] = (slot * op->num_kv_heads + kv_head) * op->head_dim;
    }
}

/* H heads of one item. D is a multiple of VF_LANES or the tail is done one by one. */
INLINE void attend_heads(int H, int format, const ps_attention_decode *op, const float *q,
                         const int64_t *offsets, int count, float *partial) {
    const int dim = op->head_dim, whole = dim / VF_LANES * VF_LANES;
    float scores[HEAD_PACK][SPAN];
    for (int t = 0; t < count; t++) {
        vf dots[HEAD_PACK];
        UNROLL for (int h = 0; h < H; h++) dots[h] = vf_zero();
        for (int d = 0; d < whole; d += VF_LANES) {
            vf key = load_as_float(format, op->k_cache, offsets[t] + d);
            UNROLL for (int h = 0; h < H; h++) dots[h] = vf_fma(key, vf_load(q + h * dim + d), dots[h]);
        }
        UNROLL for (int h = 0; h < H; h++) {
            float dot = vf_sum(dots[h]);
            for (int d = whole; d < dim; d++)
                dot += q[h * dim + d] * scalar_as_float(format, op->k_cache, offsets[t] + d);
            scores[h][t] = dot * op->scale;
        }
    }
    const int padded = (count + VF_LANES - 1) / VF_LANES * VF_LANES;
    UNROLL for (int h = 0; h < H; h++) {
        float *head = partial + h * (2 + dim);
        for (int t = count; t < padded; t++) scores[h][t] = -INFINITY;
        vf largest = vf_set(-INFINITY), sum = vf_zero();
        for (int t = 0; t < padded; t += VF_LANES) largest = vf_max(largest, vf_load(scores[h] + t));
        head[0] = vf_max_lane(largest);
        for (int t = 0; t < padded; t += VF_LANES) {
            vf weight = vf_exp(vf_sub(vf_load(scores[h] + t), vf_set(head[0])));
            vf_store(scores[h] + t, weight);
        }
        for (int t = count; t < padded; t++) scores[h][t] = 0.0f;
        for (int t = 0; t < padded; t += VF_LANES) sum = vf_add(sum, vf_load(scores[h] + t));
        head[1] = vf_sum(sum);
    }
    for (int d = 0; d + 2 * VF_LANES <= whole; d += 2 * VF_LANES) {
        vf low[HEAD_PACK], high[HEAD_PACK];
        UNROLL for (int h = 0; h < H; h++) low[h] = high[h] = vf_zero();
        for (int t = 0; t < count; t++) {
            vf first = load_as_float(format, op->v_cache, offsets[t] + d);
            vf second = load_as_float(format, op->v_cache, offsets[t] + d + VF_LANES);
            UNROLL for (int h = 0; h < H; h++) {
                vf weight = vf_set(scores[h][t]);
                low[h] = vf_fma(weight, first, low[h]);
                high[h] = vf_fma(weight, second, high[h]);
            }
        }
        UNROLL for (int h = 0; h < H; h++) {
            vf_store(partial + h * (2 + dim) + 2 + d, low[h]);
            vf_store(partial + h * (2 + dim) + 2 + d + VF_LANES, high[h]);
        }
    }
    for (int d = whole / (2 * VF_LANES) * (2 * VF_LANES); d < dim; d++) {
        UNROLL for (int h = 0; h < H; h++) {
            float value = 0.0f;
            for (int t = 0; t < count; t++)
                value += scores[h][t] * scalar_as_float(format, op->v_cache, offsets[t] + d);
            partial[h * (2 + dim) + 2 + d] = value;
        }
    }
}

INLINE void attend_item(int format, const ps_attention_decode *op, int64_t row, int kv_head,
                        int64_t span, float *partial) {
    const int group = op->num_heads / op->num_kv_heads, dim = op->head_dim;
    const int64_t first = span * SPAN, left = op->context_lens[row] - first;
    const int count = (int)(left < SPAN ? left : SPAN);
    const float *q = op->q + (row * op->num_heads + (int64_t)kv_head * group) * dim;
    int64_t offsets[SPAN];
    locate(op, row, kv_head, first, count, offsets);
    int h = 0;
    for (; h + HEAD_PACK <= group; h += HEAD_PACK)
        attend_heads(HEAD_PACK, format, op, q + h * dim, offsets, count, partial + h * (2 + dim));
    switch (group - h) {
    case 3: attend_heads(3, format, op, q + h * dim, offsets, count, partial + h * (2 + dim)); break;
    case 2: attend_heads(2, format, op, q + h * dim, offsets, count, partial + h * (2 + dim)); break;
    case 1: attend_heads(1, format, op, q + h * dim, offsets, count, partial + h * (2 + dim)); break;
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

static void attention_decode(const ps_attention_decode *op, const ps_member *me) {
    const int group = op->num_heads / op->num_kv_heads, dim = op->head_dim;
    const int64_t max_spans = spans_of(op->table_width * op->block_size);
    const int64_t head_floats = 2 + dim, item_floats = group * head_floats;
    int64_t item = 0;
    for (int64_t row = 0; row < op->rows; row++) {
        int64_t spans = spans_of(op->context_lens[row]);
        for (int64_t span = 0; span < spans; span++) {
            for (int head = 0; head < op->num_kv_heads; head++, item++) {
                if (item % me->size != me->id) continue;
                float *to = op->partial +
                            ((row * op->num_kv_heads + head) * max_spans + span) * item_floats;
                if (op->kv_format == PS_FP32) attend_item(PS_FP32, op, row, head, span, to);
                else if (op->kv_format == PS_BF16) attend_item(PS_BF16, op, row, head, span, to);
                else attend_item(PS_FP16, op, row, head, span, to);
            }
        }
    }
    ps_barrier(me);
    int64_t begin, end;
    ps_share(me, op->rows * op->num_heads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / op->num_heads, head = i % op->num_heads;
        int64_t kv_row = row * op->num_kv_heads + head / group;
        merge_spans(op->partial + kv_row * max_spans * item_floats + head % group * head_floats,
                    spans_of(op->context_lens[row]), item_floats, dim, op->out + i * dim);
    }
}

#endif
