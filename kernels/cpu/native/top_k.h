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

#define SLICES 8 /* of a row's logits, an item each */
#define GROUP 32 /* logits of which the largest is noted */

INLINE int64_t groups_of(int64_t vocab) { return (vocab + GROUP - 1) / GROUP; }

/* The largest of each group, and of them all. */
static float note_largest(const float *x, int64_t count, float *largest) {
    float all = -INFINITY;
    for (int64_t i = 0; i < count; i += GROUP) {
        float top = -INFINITY;
        if (i + GROUP <= count) {
            vf lanes = vf_load(x + i);
            UNROLL for (int j = VF_LANES; j < GROUP; j += VF_LANES)
                lanes = vf_max(lanes, vf_load(x + i + j));
            top = vf_max_lane(lanes);
        } else {
            for (int64_t j = i; j < count; j++) top = x[j] > top ? x[j] : top;
        }
        largest[i / GROUP] = top;
        all = top > all ? top : all;
    }
    return all;
}

static float sum_of_exp(const float *x, int64_t count, float largest, float factor) {
    vf total = vf_zero();
    float tail = 0.0f;
    int64_t i = 0;
    for (; i + VF_LANES <= count; i += VF_LANES)
        total = vf_add(total, vf_exp(vf_mul(vf_sub(vf_load(x + i), vf_set(largest)), vf_set(factor))));
    for (; i < count; i++) tail += expf((x[i] - largest) * factor);
    return vf_sum(total) + tail;
}

/* Items are slices of rows. */
static void top_k_slices(const ps_top_k *op, int64_t begin, int64_t end) {
    const int64_t groups = groups_of(op->vocab);
    for (int64_t item = begin; item < end; item++) {
        const int64_t row = item / SLICES, slice = item % SLICES, group = groups * slice / SLICES;
        const int64_t first = group * GROUP, behind = groups * (slice + 1) / SLICES * GROUP;
        const int64_t count = (behind < op->vocab ? behind : op->vocab) - first;
        const float *x = op->logits + row * op->vocab + first;
        float *partial = op->partial + item * 2, factor = op->inverse_temperature[row];
        partial[0] = note_largest(x, count, op->largest + row * groups + group);
        partial[1] = factor > 0.0f ? sum_of_exp(x, count, partial[0], factor) : 0.0f;
    }
}

INLINE void empty_heap(float *values, int64_t *ids, int64_t k) {
    for (int64_t i = 0; i < k; i++) {
        values[i] = -INFINITY;
        ids[i] = INT64_MAX;
    }
}

/* The k best of a row, sorted. As many groups have a largest of at least the k-th best of those, so
 * no other group holds one of the k best. */
static void rank_row(const ps_top_k *op, int64_t row) {
    const int64_t k = op->k, groups = groups_of(op->vocab);
    const float *x = op->logits + row * op->vocab, *largest = op->largest + row * groups;
    float *values = op->values + row * k, enough = -INFINITY;
    int64_t *ids = op->ids + row * k;
    empty_heap(values, ids, k);
    for (int64_t g = 0; g < groups; g++) offer(values, ids, k, largest[g], g);
    enough = values[0];
    empty_heap(values, ids, k);
    for (int64_t g = 0; g < groups; g++) {
        if (largest[g] < enough) continue;
        const int64_t behind = (g + 1) * GROUP < op->vocab ? (g + 1) * GROUP : op->vocab;
        for (int64_t i = g * GROUP; i < behind; i++)
            if (x[i] >= enough) offer(values, ids, k, x[i], i);
    }
    for (int64_t left = k; left > 1; left--) { /* the last one out of the heap, from the back */
        const float value = values[left - 1];
        const int64_t id = ids[left - 1];
        values[left - 1] = values[0];
        ids[left - 1] = ids[0];
        sift(values, ids, left - 1, 0, value, id);
    }
    for (int64_t i = 0; i < k; i++) /* NaN ranks nowhere: a row of nothing else still names tokens */
        if (ids[i] == INT64_MAX) ids[i] = i;
}

/* Items are rows. */
static void top_k_merge(const ps_top_k *op, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
        rank_row(op, row);
        const float *partial = op->partial + row * SLICES * 2, factor = op->inverse_temperature[row];
        float sum = 0.0f;
        for (int s = 0; s < SLICES && factor > 0.0f; s++)
            if (partial[2 * s + 1] > 0.0f)
                sum += partial[2 * s + 1] * expf((partial[2 * s] - op->values[row * op->k]) * factor);
        op->log_sum[row] = factor > 0.0f ? logf(sum) : 0.0f;
    }
}

#endif
