/* The k largest logits of each row in order, and the logarithm of the softmax denominator relative
 * to the largest. */
#ifndef PS_TOP_K_H
#define PS_TOP_K_H

#include "ops.h"
#include "simd.h"

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

#define SLICES 8 /* of a row's logits, each with a heap of its own */

/* Items are slices of rows. */
static void top_k_slices(const ps_top_k *op, int64_t begin, int64_t end) {
    const int64_t k = op->k;
    for (int64_t item = begin; item < end; item++) {
        int64_t row = item / SLICES, slice = item % SLICES;
        const float *logits = op->logits + row * op->vocab;
        const int64_t first = op->vocab * slice / SLICES, last = op->vocab * (slice + 1) / SLICES;
        float *values = op->heap_values + item * k, *partial = op->partial + item * 2;
        int64_t *ids = op->heap_ids + item * k;
        for (int64_t i = 0; i < k; i++) {
            values[i] = -INFINITY;
            ids[i] = INT64_MAX;
        }
        for (int64_t i = first; i < last; i++)
            if (logits[i] >= values[0]) offer(values, ids, k, logits[i], i);
        partial[0] = -INFINITY;
        partial[1] = 0.0f;
        float factor = op->inverse_temperature[row];
        if (factor > 0.0f) slice_sum(logits + first, last - first, factor, partial, partial + 1);
    }
}

/* Items are rows: heaps into one, then out of it from the back. */
static void top_k_merge(const ps_top_k *op, int64_t begin, int64_t end) {
    const int64_t k = op->k;
    for (int64_t row = begin; row < end; row++) {
        float *values = op->heap_values + row * SLICES * k, *partial = op->partial + row * SLICES * 2;
        int64_t *ids = op->heap_ids + row * SLICES * k;
        for (int64_t i = k; i < k * SLICES; i++) offer(values, ids, k, values[i], ids[i]);
        for (int64_t left = k; left > 0; left--) {
            op->values[row * k + left - 1] = values[0];
            op->ids[row * k + left - 1] = ids[0];
            sift(values, ids, left - 1, 0, values[left - 1], ids[left - 1]);
        }
        float factor = op->inverse_temperature[row], largest = -INFINITY, sum = 0.0f;
        for (int s = 0; s < SLICES; s++)
            largest = partial[2 * s] > largest ? partial[2 * s] : largest;
        for (int s = 0; s < SLICES && factor > 0.0f; s++)
            if (partial[2 * s + 1] > 0.0f)
                sum += partial[2 * s + 1] * expf((partial[2 * s] - largest) * factor);
        op->log_sum[row] = factor > 0.0f ? logf(sum) : 0.0f;
    }
}

#endif
