/* The k largest logits of each row in order, and the logarithm of the softmax denominator relative
 * to the largest. */
#ifndef PS_TOP_K_H
#define PS_TOP_K_H

#include "ops.h"
#include "simd.h"
#include "team.h"

/* Whether a ranks after b: smaller, or equal and later. */
INLINE int after(float a, int64_t a_id, float b, int64_t b_id) {
    return a < b || (a == b && a_id > b_id);
}

/* Put (value, id) into the heap of `count` whose root ranks last; move down from `at`. */
static void sift(float *values, int64_t *ids, int64_t count, int64_t at, float value, int64_t id) {
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= count) break;
        if (child + 1 < count &&
            after(values[child + 1], ids[child + 1], values[child], ids[child]))
            child++;
        if (!after(values[child], ids[child], value, id)) break;
        values[at] = values[child];
        ids[at] = ids[child];
        at = child;
    }
    values[at] = value;
    ids[at] = id;
}

INLINE void offer(float *values, int64_t *ids, int64_t k, float value, int64_t id) {
    if (after(values[0], ids[0], value, id)) sift(values, ids, k, 0, value, id);
}

/* Largest value and sum of exp((x - largest) * factor) of a slice. */
static void slice_sum(const float *x, int64_t count, float factor, float *largest, float *sum) {
    vf top = vf_set(-INFINITY), total = vf_zero();
    float top_tail = -INFINITY, tail = 0.0f;
    int64_t i = 0;
    for (; i + VF_LANES <= count; i += VF_LANES) top = vf_max(top, vf_load(x + i));
    for (; i < count; i++) top_tail = x[i] > top_tail ? x[i] : top_tail;
    float all = vf_max_lane(top);
    *largest = all = all > top_tail ? all : top_tail;
    for (i = 0; i + VF_LANES <= count; i += VF_LANES)
        total = vf_add(total, vf_exp(vf_mul(vf_sub(vf_load(x + i), vf_set(all)), vf_set(factor))));
    for (; i < count; i++) tail += expf((x[i] - all) * factor);
    *sum = vf_sum(total) + tail;
}

static void top_k_row(const ps_top_k *op, int64_t row, const ps_member *me) {
    const float *logits = op->logits + row * op->vocab;
    const int64_t k = op->k;
    const float factor = op->inverse_temperature[row];
    float *values = op->heap_values + me->id * k, *partial = op->partial + me->id * 2;
    int64_t *ids = op->heap_ids + me->id * k, begin, end;
    ps_share(me, op->vocab, &begin, &end);
    for (int64_t i = 0; i < k; i++) {
        values[i] = -INFINITY;
        ids[i] = INT64_MAX;
    }
    for (int64_t i = begin; i < end; i++)
        if (logits[i] >= values[0]) offer(values, ids, k, logits[i], i);
    partial[0] = -INFINITY;
    partial[1] = 0.0f;
    if (factor > 0.0f) slice_sum(logits + begin, end - begin, factor, partial, partial + 1);
    ps_barrier(me);
    if (me->id != 0) return;
    for (int64_t i = k; i < k * me->size; i++)
        offer(op->heap_values, op->heap_ids, k, op->heap_values[i], op->heap_ids[i]);
    for (int64_t left = k; left > 0; left--) { /* take the last-ranked away, from the back */
        op->values[row * k + left - 1] = op->heap_values[0];
        op->ids[row * k + left - 1] = op->heap_ids[0];
        sift(op->heap_values, op->heap_ids, left - 1, 0, op->heap_values[left - 1],
             op->heap_ids[left - 1]);
    }
    float largest = -INFINITY, sum = 0.0f;
    for (int t = 0; t < me->size; t++)
        largest = op->partial[2 * t] > largest ? op->partial[2 * t] : largest;
    for (int t = 0; t < me->size; t++)
        if (op->partial[2 * t + 1] > 0.0f)
            sum += op->partial[2 * t + 1] * expf((op->partial[2 * t] - largest) * factor);
    op->log_sum[row] = factor > 0.0f ? logf(sum) : 0.0f;
}

static void top_k(const ps_top_k *op, const ps_member *me) {
    for (int64_t row = 0; row < op->rows; row++) {
        top_k_row(op, row, me);
        ps_barrier(me); /* the scratch is free again */
    }
}

#endif
