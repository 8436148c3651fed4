/* Embedding, norm, rotation with KV store, gated activation, soft-cap, gathering: little work, split
 * by rows and heads. */
#ifndef PS_SMALL_OPS_H
#define PS_SMALL_OPS_H

#include "kv_entries.h"
#include "linear_dense.h"
#include "linear_grouped.h"

static void embed(const ps_embed *op, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
        float *out = op->out + row * op->weight.num_in;
        if (op->weight.format >= PS_INT8) embed_grouped(&op->weight, op->ids[row], out);
        else embed_dense(&op->weight, op->ids[row], out);
        if (op->scale == 1.0f) continue;
        for (int64_t i = 0; i < op->weight.num_in; i++) out[i] *= op->scale;
    }
}

/* Items are parts of rows. */
static void rms_norm_part(const ps_rms_norm *op, int64_t item) {
    const int64_t hidden = op->hidden, row = item / op->parts, part = item % op->parts;
    float *x = op->residual + row * op->stride + part * hidden, *out = op->out + item * hidden;
    const float *delta = op->delta ? op->delta + item * hidden : 0;
    vf squares = vf_zero();
    float tail = 0.0f;
    int64_t i = 0;
    for (; i + VF_LANES <= hidden; i += VF_LANES) {
        vf value = vf_load(x + i);
        if (delta) {
            value = vf_add(value, vf_load(delta + i));
            vf_store(x + i, value);
        }
        squares = vf_fma(value, value, squares);
    }
    for (; i < hidden; i++) {
        if (delta) x[i] += delta[i];
        tail += x[i] * x[i];
    }
    if (!op->out) return;
    float factor = 1.0f / sqrtf((vf_sum(squares) + tail) / (float)hidden + op->eps);
    for (i = 0; i + VF_LANES <= hidden; i += VF_LANES)
        vf_store(out + i, vf_mul(vf_mul(vf_load(x + i), vf_set(factor)), vf_load(op->weight + i)));
    for (; i < hidden; i++) out[i] = x[i] * factor * op->weight[i];
}

static void rms_norm(const ps_rms_norm *op, int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; item++) rms_norm_part(op, item);
}

/* One head: pairs (i, i + half) turned by the position's angle, the rest copied. */
INLINE void rotate(const float *x, const float *cos, const float *sin, int half, int dim, float *out) {
    int i = 0;
    for (; i + VF_LANES <= half; i += VF_LANES) {
        vf a = vf_load(x + i), b = vf_load(x + half + i);
        vf c = vf_load(cos + i), s = vf_load(sin + i);
        vf_store(out + i, vf_sub(vf_mul(a, c), vf_mul(b, s)));
        vf_store(out + half + i, vf_add(vf_mul(b, c), vf_mul(a, s)));
    }
    for (; i < half; i++) {
        out[i] = x[i] * cos[i] - x[half + i] * sin[i];
        out[half + i] = x[half + i] * cos[i] + x[i] * sin[i];
    }
    for (i = 2 * half; i < dim; i++) out[i] = x[i];
}

INLINE void store_as(int format, const float *x, int dim, void *cache, int64_t index) {
    int i = 0;
    if (format == PS_FP32) {
        memcpy((float *)cache + index, x, (size_t)dim * 4);
    } else if (format == PS_BF16) {
        for (; i < dim; i++) ((uint16_t *)cache)[index + i] = float_to_bf16(x[i]);
    } else {
        uint16_t *to = (uint16_t *)cache + index, last[VF_LANES];
        for (; i + VF_LANES <= dim; i += VF_LANES) vf_to_fp16(to + i, vf_load(x + i));
        if (i == dim) return;
        float padded[VF_LANES] = {0};
        memcpy(padded, x + i, (size_t)(dim - i) * 4);
        vf_to_fp16(last, vf_load(padded));
        memcpy(to + i, last, (size_t)(dim - i) * 2);
    }
}

/* One head of a token, to its slot. */
INLINE void store_entry(const ps_kv *kv, const float *x, int dim, int64_t entry) {
    if (kv->format >= PS_INT8) store_token_groups(kv, x, dim, entry);
    else store_as(kv->format, x, dim, kv->data, entry * dim);
}

/* Whether rows `a` and `b` are tokens of one sequence. */
INLINE int same_sequence(const ps_rope_store *op, int64_t a, int64_t b) {
    return a >= 0 && b < op->rows && op->tails[a] == op->tails[b];
}

/* A key by channel waits for its block to be full: among the step's keys, and, unless the next block
 * begins in this step, in its sequence's tail. */
static void keep_key(const ps_rope_store *op, int64_t row, int head, const float *key) {
    const int dim = op->head_dim;
    const int64_t within = op->slot_mapping[row] % op->block_size;
    uint16_t *fresh = op->k_cache.fresh + (row * op->num_kv_heads + head) * dim;
    for (int d = 0; d < dim; d++) fresh[d] = float_to_bf16(key[d]);
    if (same_sequence(op, row, row + op->block_size - within)) return;
    const int64_t place = (op->tails[row] * op->block_size + within) * op->num_kv_heads + head;
    memcpy(op->k_cache.tails + place * dim, fresh, (size_t)dim * 2);
}

/* Quantize the blocks that the rows have filled. Items are heads of rows. */
static void close_blocks(const ps_rope_store *op, int64_t begin, int64_t end) {
    const int dim = op->head_dim, heads = op->num_kv_heads, size = (int)op->block_size;
    for (int64_t item = begin; item < end; item++) {
        const int64_t row = item / heads, head = item % heads, slot = op->slot_mapping[row];
        if (slot % size != size - 1) continue;
        const int64_t first = row + 1 - size;
        const uint16_t *keys = same_sequence(op, first, row)
                                   ? op->k_cache.fresh + first * heads * dim
                                   : op->k_cache.tails + op->tails[row] * size * heads * dim;
        uint8_t *to = (uint8_t *)op->k_cache.data +
                      (slot / size * heads + head) * channel_entry_bytes(size, dim);
        store_channel_groups(keys + head * dim, (int64_t)heads * dim, size, dim, to);
    }
}

/* Items are heads of rows, queries before keys. */
static void rope_store(const ps_rope_store *op, int64_t begin, int64_t end) {
    const int heads = op->num_heads + op->num_kv_heads, dim = op->head_dim;
    for (int64_t item = begin; item < end; item++) {
        int64_t row = item / heads;
        int head = (int)(item % heads);
        const float *cos = op->cos + op->positions[row] * op->half;
        const float *sin = op->sin + op->positions[row] * op->half;
        if (head < op->num_heads) {
            rotate(op->q + row * op->q_stride + head * dim, cos, sin, op->half, dim,
                   op->q_out + (row * op->num_heads + head) * dim);
            continue;
        }
        head -= op->num_heads;
        float key[MAX_HEAD_DIM];
        int64_t entry = op->slot_mapping[row] * op->num_kv_heads + head;
        rotate(op->k + row * op->k_stride + head * dim, cos, sin, op->half, dim, key);
        if (op->k_cache.format == PS_INT4_CHANNEL) keep_key(op, row, head, key);
        else store_entry(&op->k_cache, key, dim, entry);
        store_entry(&op->v_cache, op->v + row * op->v_stride + head * dim, dim, entry);
    }
}

/* Vectors of one row; the last may be short. */
INLINE int64_t gate_vectors(const ps_gate_mul *op) {
    return (op->width + VF_LANES - 1) / VF_LANES;
}

/* silu(g) * u = g * u / (1 + e^-g). GELU's approximation by tanh is the same of another sigmoid:
 * g / 2 * (1 + tanh(z)) = g / (1 + e^-2z), z = sqrt(2 / pi) * (g + 0.044715 g^3). */
INLINE vf gated(int activation, const float *gate, const float *up) {
    vf g = vf_load(gate), z = g;
    if (activation == PS_GELU_TANH) {
        vf cubic = vf_fma(vf_mul(g, g), vf_set(0.044715f), vf_set(1.0f));
        z = vf_mul(vf_mul(g, cubic), vf_set(1.5957691216f)); /* 2 sqrt(2 / pi) */
    }
    vf sigmoid = vf_div(vf_set(1.0f), vf_add(vf_set(1.0f), vf_exp(vf_sub(vf_zero(), z))));
    return vf_mul(vf_mul(g, sigmoid), vf_load(up));
}

/* Items are vectors of rows. */
static void gate_mul(const ps_gate_mul *op, int64_t begin, int64_t end) {
    const int64_t vectors = gate_vectors(op);
    for (int64_t item = begin; item < end; item++) {
        int64_t row = item / vectors, i = item % vectors * VF_LANES, left = op->width - i;
        const float *gate = op->x + row * 2 * op->width + i;
        float *out = op->out + row * op->width + i;
        if (left >= VF_LANES) {
            vf_store(out, gated(op->activation, gate, gate + op->width));
            continue;
        }
        float padded[3][VF_LANES] = {{0}};
        memcpy(padded[0], gate, (size_t)left * 4);
        memcpy(padded[1], gate + op->width, (size_t)left * 4);
        vf_store(padded[2], gated(op->activation, padded[0], padded[1]));
        memcpy(out, padded[2], (size_t)left * 4);
    }
}

#define CAP_CHUNK 1024 /* floats of an item */

INLINE int64_t cap_chunks(const ps_soft_cap *op) {
    return (op->rows * op->width + CAP_CHUNK - 1) / CAP_CHUNK;
}

/* Items are chunks of the whole. */
static void soft_cap(const ps_soft_cap *op, int64_t begin, int64_t end) {
    const int64_t all = op->rows * op->width;
    for (int64_t item = begin; item < end; item++) {
        float *x = op->x + item * CAP_CHUNK;
        const int64_t left = all - item * CAP_CHUNK, count = left < CAP_CHUNK ? left : CAP_CHUNK;
        int64_t i = 0;
        for (; i + VF_LANES <= count; i += VF_LANES)
            vf_store(x + i, vf_soft_cap(vf_load(x + i), op->cap));
        for (; i < count; i++) x[i] = op->cap * tanhf(x[i] / op->cap);
    }
}

/* Items are rows. */
static void gather_columns(const ps_gather_columns *op, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
        const float *x = op->x + row * op->x_stride;
        float *out = op->out + row * op->width;
        for (int64_t i = 0; i < op->width; i++) out[i] = x[op->order[i]];
    }
}

#endif
