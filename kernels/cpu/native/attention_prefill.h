/* Causal attention of a prompt's queries over paged blocks, by tiles with an online softmax
 * (FlashAttention, arXiv 2205.14135): keys and values of a tile are widened once for all query
 * heads that share them. */
#ifndef PS_ATTENTION_PREFILL_H
#define PS_ATTENTION_PREFILL_H

#include "gemm.h"
#include "kv_entries.h"
#include "linear_dense.h"
#include "ops.h"

#define TILE_KEYS 64
#define TILE_QUERIES 30 /* a multiple of GEMM_ROWS */

typedef struct {
    float *keys;    /* [D, TILE_KEYS], transposed */
    float *values;  /* [TILE_KEYS, D] */
    float *scores;  /* [TILE_QUERIES, TILE_KEYS] */
    float *out;     /* [group, TILE_QUERIES, D] */
    float *largest; /* [group, TILE_QUERIES] */
    float *sum;
} ps_tile;

/* Which keys a pass attends to. Keys by channel take two: a query sees those before its own block
 * as they are stored, and its own block's as they were before. */
typedef enum { ALL_KEYS, EARLIER_BLOCKS, OWN_BLOCK } ps_pass;

/* The key at position `at` as floats. */
INLINE void widen_key(const ps_attention_prefill *op, ps_pass pass, int kv_head, int64_t at,
                      int64_t slot, float *key) {
    const int dim = op->head_dim, heads = op->num_kv_heads, size = op->block_size;
    if (pass == ALL_KEYS) {
        widen_token(&op->k_cache, slot * heads + kv_head, dim, key);
    } else if (pass == EARLIER_BLOCKS) {
        const uint8_t *entry = (const uint8_t *)op->k_cache.data +
                               (slot / size * heads + kv_head) * channel_entry_bytes(size, dim);
        widen_channels(entry, (int)(slot % size), size, dim, key);
    } else {
        const int64_t row = at - (op->context_len - op->num_queries);
        const uint16_t *fresh = op->k_cache.fresh + (row * heads + kv_head) * dim;
        for (int d = 0; d < dim; d += VF_LANES) vf_store(key + d, vf_from_bf16(fresh + d));
    }
}

/* Widen `count` keys and values from `first` on; the rest of the tile is 0. */
static void load_tile(const ps_attention_prefill *op, ps_pass pass, int kv_head, int64_t first,
                      int count, const ps_tile *tile) {
    const int dim = op->head_dim;
    for (int j = 0; j < TILE_KEYS; j++) {
        float key[MAX_HEAD_DIM], *value = tile->values + j * dim;
        if (j < count) {
            int64_t at = first + j, block = op->block_table[at / op->block_size];
            int64_t slot = block * op->block_size + at % op->block_size;
            widen_key(op, pass, kv_head, at, slot, key);
            widen_token(&op->v_cache, slot * op->num_kv_heads + kv_head, dim, value);
        } else {
            memset(key, 0, sizeof key);
            memset(value, 0, (size_t)dim * 4);
        }
        for (int d = 0; d < dim; d++) tile->keys[d * TILE_KEYS + j] = key[d];
    }
}

/* Scores of one row to weights, 0 outside of [begin, end); the row's maximum, sum and values follow
 * the new maximum. */
INLINE void weigh_row(float *scores, int begin, int end, const ps_attention_prefill *op,
                      float *largest, float *sum, float *out) {
    const int dim = op->head_dim;
    vf top = vf_set(*largest), total = vf_zero();
    for (int j = 0; j < TILE_KEYS; j += VF_LANES) {
        vf score = vf_mul(vf_load(scores + j), vf_set(op->scale));
        vf_store(scores + j, op->softcap > 0.0f ? vf_soft_cap(score, op->softcap) : score);
    }
    for (int j = 0; j < begin; j++) scores[j] = -INFINITY;
    for (int j = end; j < TILE_KEYS; j++) scores[j] = -INFINITY;
    for (int j = 0; j < TILE_KEYS; j += VF_LANES) top = vf_max(top, vf_load(scores + j));
    float now = vf_max_lane(top), kept = expf(*largest - now);
    for (int j = 0; j < TILE_KEYS; j += VF_LANES)
        vf_store(scores + j, vf_exp(vf_sub(vf_load(scores + j), vf_set(now))));
    for (int j = 0; j < begin; j++) scores[j] = 0.0f;
    for (int j = end; j < TILE_KEYS; j++) scores[j] = 0.0f;
    for (int j = 0; j < TILE_KEYS; j += VF_LANES) total = vf_add(total, vf_load(scores + j));
    *sum = *sum * kept + vf_sum(total);
    *largest = now;
    if (kept == 1.0f) return;
    for (int d = 0; d < dim; d += VF_LANES)
        vf_store(out + d, vf_mul(vf_load(out + d), vf_set(kept)));
}

/* The first key that the query at `position` sees. */
INLINE int64_t first_key(const ps_attention_prefill *op, int64_t position) {
    return op->window > 0 && position >= op->window ? position + 1 - op->window : 0;
}

/* Where a position's block begins. */
INLINE int64_t block_begin(const ps_attention_prefill *op, int64_t position) {
    return position - position % op->block_size;
}

INLINE int in_tile(int64_t key) { return (int)(key < 0 ? 0 : key < TILE_KEYS ? key : TILE_KEYS); }

/* One head's queries against the tile that begins at key `first`. */
static void attend_tile(const ps_attention_prefill *op, ps_pass pass, int head, int in_group,
                        int64_t query, int queries, int64_t first, const ps_tile *tile) {
    const int dim = op->head_dim;
    const float *q = op->q + query * op->q_stride + (int64_t)head * dim;
    float *out = tile->out + (int64_t)in_group * TILE_QUERIES * dim;
    for (int j = 0; j < TILE_KEYS; j += GEMM_COLUMNS)
        gemm_rows(queries, dim, q, op->q_stride, tile->keys + j, TILE_KEYS, tile->scores + j, TILE_KEYS, 0);
    for (int i = 0; i < queries; i++) {
        int64_t position = op->context_len - op->num_queries + query + i;
        int64_t from = first_key(op, position), to = position + 1;
        if (pass == EARLIER_BLOCKS) to = block_begin(op, position);
        if (pass == OWN_BLOCK && from < block_begin(op, position)) from = block_begin(op, position);
        int begin = in_tile(from - first), end = in_tile(to - first);
        float *scores = tile->scores + i * TILE_KEYS;
        if (begin >= end) { /* keys that other queries of this block see */
            memset(scores, 0, TILE_KEYS * 4);
            continue;
        }
        weigh_row(scores, begin, end, op, tile->largest + in_group * TILE_QUERIES + i,
                  tile->sum + in_group * TILE_QUERIES + i, out + i * dim);
    }
    for (int d = 0; d < dim; d += GEMM_COLUMNS)
        gemm_rows(queries, TILE_KEYS, tile->scores, TILE_KEYS, tile->values + d, dim, out + d, dim, 1);
}

INLINE int64_t query_blocks(const ps_attention_prefill *op) {
    return (op->num_queries + TILE_QUERIES - 1) / TILE_QUERIES;
}

/* One pass of a block of queries over the keys from `start` to before `last`. */
static void attend_pass(const ps_attention_prefill *op, ps_pass pass, int kv_head, int64_t query,
                        int queries, int64_t start, int64_t last, const ps_tile *tile) {
    const int group = op->num_heads / op->num_kv_heads;
    for (int64_t first = start; first < last; first += TILE_KEYS) {
        int count = (int)(last - first < TILE_KEYS ? last - first : TILE_KEYS);
        load_tile(op, pass, kv_head, first, count, tile);
        for (int h = 0; h < group; h++)
            attend_tile(op, pass, kv_head * group + h, h, query, queries, first, tile);
    }
}

/* Items are (block of queries, key head), early queries first. */
static void attention_prefill(const ps_attention_prefill *op, int64_t begin, int64_t end) {
    const int group = op->num_heads / op->num_kv_heads, dim = op->head_dim;
    float keys[dim * TILE_KEYS], values[dim * TILE_KEYS], scores[TILE_QUERIES * TILE_KEYS];
    float out[group * TILE_QUERIES * dim], largest[group * TILE_QUERIES], sum[group * TILE_QUERIES];
    const ps_tile tile = {keys, values, scores, out, largest, sum};
    for (int64_t item = begin; item < end; item++) {
        const int64_t query = item / op->num_kv_heads * TILE_QUERIES;
        const int kv_head = (int)(item % op->num_kv_heads);
        const int64_t left = op->num_queries - query;
        const int queries = (int)(left < TILE_QUERIES ? left : TILE_QUERIES);
        const int64_t last_key = op->context_len - op->num_queries + query + queries;
        memset(out, 0, sizeof out);
        for (int i = 0; i < group * TILE_QUERIES; i++) {
            largest[i] = -INFINITY;
            sum[i] = 0.0f;
        }
        const int64_t position = op->context_len - op->num_queries + query;
        const int64_t start = first_key(op, position), own = block_begin(op, position);
        if (op->k_cache.format == PS_INT4_CHANNEL) {
            const int64_t earlier = block_begin(op, last_key - 1);
            attend_pass(op, EARLIER_BLOCKS, kv_head, query, queries, start, earlier, &tile);
            attend_pass(op, OWN_BLOCK, kv_head, query, queries, own, last_key, &tile);
        } else {
            attend_pass(op, ALL_KEYS, kv_head, query, queries, start, last_key, &tile);
        }
        for (int h = 0; h < group; h++) {
            for (int i = 0; i < queries; i++) {
                const float *from = out + (h * TILE_QUERIES + i) * dim;
                float *to = op->out + ((query + i) * op->num_heads + kv_head * group + h) * dim;
                vf inverse = vf_set(1.0f / sum[h * TILE_QUERIES + i]);
                for (int d = 0; d < dim; d += VF_LANES)
                    vf_store(to + d, vf_mul(vf_load(from + d), inverse));
            }
        }
    }
}

#endif
