/* The innermost work of decode attention: a pack of query heads of one key head against a pack of
 * tokens, over entries of any format as they lie. Rows of scores are SPAN floats apart. */
#ifndef PS_ATTENTION_PACKS_H
#define PS_ATTENTION_PACKS_H

#include "kv_entries.h"
#include "linear_dense.h"
#include "ops.h"

#define SPAN 256         /* tokens; longer ones would have more scores than the nearest cache holds */
#define HEAD_PACK (VF_LANES == 16 ? 4 : 3) /* query heads at once, times 4 tokens: sums in registers */
#define TOKEN_PACK 4

/* The tokens of a span that are worked on at once: where the entry of each begins. */
typedef struct {
    const uint8_t *entry[TOKEN_PACK];
} ps_tokens;

/* What T tokens have of a row of scores or weights. */
INLINE f4 take(int T, const float *p) {
    if (T == TOKEN_PACK) return f4_load(p);
    return (f4){p[0]};
}
INLINE void put(int T, float *p, f4 x) {
    if (T == TOKEN_PACK) f4_store(p, x);
    else p[0] = x[0];
}

/* Scale and offset of a group of each token, `at` bytes into its entry. */
INLINE void params_of(int T, ps_tokens tokens, int64_t at, f4 *scale, f4 *offset) {
    const void *places[TOKEN_PACK];
    UNROLL for (int t = 0; t < TOKEN_PACK; t++) places[t] = tokens.entry[t < T ? t : 0] + at;
    half_pairs(places, scale, offset);
}

/* scores[h][t] = scale * q[h] . key[t] for H heads and T tokens of one key head. */
INLINE void score_dense(int H, int T, int format, const ps_attention_decode *op, const float *q,
                        ps_tokens tokens, float *scores) {
    const int dim = op->head_dim, whole = dim / VF_LANES * VF_LANES;
    vf dots[HEAD_PACK][TOKEN_PACK];
    UNROLL for (int h = 0; h < H; h++)
        UNROLL for (int t = 0; t < TOKEN_PACK; t++) dots[h][t] = vf_zero();
    for (int d = 0; d < whole; d += VF_LANES) {
        UNROLL for (int t = 0; t < T; t++) {
            vf key = load_as_float(format, tokens.entry[t], d);
            UNROLL for (int h = 0; h < H; h++)
                dots[h][t] = vf_fma(key, vf_load(q + h * dim + d), dots[h][t]);
        }
    }
    UNROLL for (int h = 0; h < H; h++) {
        f4 sums = vf_sum4(dots[h]);
        UNROLL for (int t = 0; t < T; t++)
            for (int d = whole; d < dim; d++)
                sums[t] += q[h * dim + d] * scalar_as_float(format, tokens.entry[t], d);
        put(T, scores + h * SPAN, sums * op->scale);
    }
}

/* The queries of a row in 16 bits beside keys in 8: q = code * scale, group by group of a head. What
 * that rounds is 1/256 of what the keys were rounded by. */
typedef struct {
    int16_t *codes; /* [Hq, D] */
    float *scales;  /* [Hq, groups] */
    float *sums;    /* of q, for the keys' offsets */
} ps_query;

static void round_query(const float *q, int64_t groups, int size, const ps_query *to) {
    for (int64_t g = 0; g < groups; g++) {
        const float *x = q + g * size;
        vf largest = vf_zero(), sum = vf_zero();
        for (int d = 0; d < size; d += VF_LANES) {
            largest = vf_max(largest, vf_abs(vf_load(x + d)));
            sum = vf_add(sum, vf_load(x + d));
        }
        const float top = vf_max_lane(largest), scale = top > 0.0f ? top / 32767.0f : 1.0f;
        for (int d = 0; d < size; d += VF_LANES)
            vi_store_i16(to->codes + g * size + d,
                         vi_round(vf_div(vf_load(x + d), vf_set(scale))));
        to->scales[g] = scale;
        to->sums[g] = vf_sum(sum);
    }
}

/* As score_dense over keys of 8 bits; `q` begins at the first of the heads. */
INLINE void score_int8(int H, int T, const ps_attention_decode *op, ps_query q, ps_tokens tokens,
                       float *scores) {
    const int dim = op->head_dim, size = op->k_cache.group_size, groups = dim / size;
    f4 totals[HEAD_PACK];
    UNROLL for (int h = 0; h < H; h++) totals[h] = f4_set(0.0f);
    for (int g = 0; g < groups; g++) {
        vi dots[HEAD_PACK][TOKEN_PACK];
        UNROLL for (int h = 0; h < H; h++)
            UNROLL for (int t = 0; t < TOKEN_PACK; t++) dots[h][t] = vi_zero();
        for (int d = g * size; d < (g + 1) * size; d += 2 * VF_LANES)
            UNROLL for (int t = 0; t < T; t++) {
                vi key = pair_i8((const int8_t *)tokens.entry[t] + d);
                UNROLL for (int h = 0; h < H; h++)
                    dots[h][t] = pair_dot(dots[h][t], key, vi_load(q.codes + h * dim + d));
            }
        f4 scale, offset;
        params_of(T, tokens, dim + 4 * g, &scale, &offset);
        UNROLL for (int h = 0; h < H; h++) {
            vf wide[TOKEN_PACK];
            UNROLL for (int t = 0; t < TOKEN_PACK; t++) wide[t] = vi_to_float(dots[h][t]);
            totals[h] += vf_sum4(wide) * scale * q.scales[h * groups + g] +
                         offset * q.sums[h * groups + g];
        }
    }
    UNROLL for (int h = 0; h < H; h++) put(T, scores + h * SPAN, totals[h] * op->scale);
}

/* As score_dense over keys of 4 bits by channel, whose scales are in `q` already; `base[h]` is what
 * their offsets add. */
INLINE void score_channels(int H, int T, const ps_attention_decode *op, const float *q,
                           const float *base, ps_tokens tokens, float *scores) {
    const int dim = op->head_dim;
    vf dots[HEAD_PACK][TOKEN_PACK];
    UNROLL for (int h = 0; h < H; h++)
        UNROLL for (int t = 0; t < TOKEN_PACK; t++) dots[h][t] = vf_zero();
    for (int d = 0; d < dim / 2; d += VF_LANES)
        UNROLL for (int t = 0; t < T; t++) {
            vf low, high;
            nibbles(tokens.entry[t] + d, &low, &high);
            UNROLL for (int h = 0; h < H; h++) {
                dots[h][t] = vf_fma(low, vf_load(q + h * dim + d), dots[h][t]);
                dots[h][t] = vf_fma(high, vf_load(q + h * dim + dim / 2 + d), dots[h][t]);
            }
        }
    UNROLL for (int h = 0; h < H; h++)
        put(T, scores + h * SPAN, (vf_sum4(dots[h]) + base[h]) * op->scale);
}

/* values[h] += weights[h][t] * value[t] for H heads and T tokens of one key head. */
INLINE void add_dense(int H, int T, int format, const ps_attention_decode *op, const float *weights,
                      ps_tokens tokens, float *values, int64_t stride) {
    const int dim = op->head_dim, whole = dim / VF_LANES * VF_LANES;
    vf shares[HEAD_PACK][TOKEN_PACK];
    UNROLL for (int h = 0; h < H; h++)
        UNROLL for (int t = 0; t < T; t++) shares[h][t] = vf_set(weights[h * SPAN + t]);
    for (int d = 0; d < whole; d += VF_LANES) {
        vf sums[HEAD_PACK];
        UNROLL for (int h = 0; h < H; h++) sums[h] = vf_load(values + h * stride + d);
        UNROLL for (int t = 0; t < T; t++) {
            vf value = load_as_float(format, tokens.entry[t], d);
            UNROLL for (int h = 0; h < H; h++)
                sums[h] = vf_fma(shares[h][t], value, sums[h]);
        }
        UNROLL for (int h = 0; h < H; h++) vf_store(values + h * stride + d, sums[h]);
    }
    for (int d = whole; d < dim; d++)
        UNROLL for (int h = 0; h < H; h++)
            UNROLL for (int t = 0; t < T; t++)
                values[h * stride + d] +=
                    weights[h * SPAN + t] * scalar_as_float(format, tokens.entry[t], d);
}

/* As add_dense over values of 8 or 4 bits by token; what their offsets add is gathered in `offsets`,
 * [H, groups] times a float for each token of a pack. */
INLINE void add_groups(int H, int T, int bits, const ps_attention_decode *op, const float *weights,
                       ps_tokens tokens, float *values, int64_t stride, float *offsets) {
    const int dim = op->head_dim, size = op->v_cache.group_size, groups = dim / size;
    const int apart = bits == 8 ? 0 : size / 2; /* from the low nibbles' dims to the high ones' */
    for (int g = 0; g < groups; g++) {
        vf shares[HEAD_PACK][TOKEN_PACK];
        f4 scale, offset;
        params_of(T, tokens, dim * bits / 8 + 4 * g, &scale, &offset);
        UNROLL for (int h = 0; h < H; h++) {
            f4 weight = take(T, weights + h * SPAN), share = weight * scale;
            UNROLL for (int t = 0; t < T; t++) shares[h][t] = vf_set(share[t]);
            float *sum = offsets + (h * groups + g) * TOKEN_PACK;
            f4_store(sum, f4_load(sum) + weight * offset);
        }
        for (int d = 0; d < (bits == 8 ? size : size / 2); d += VF_LANES) {
            float *to = values + g * size + d;
            vf low_sums[HEAD_PACK], high_sums[HEAD_PACK];
            UNROLL for (int h = 0; h < H; h++) {
                low_sums[h] = vf_load(to + h * stride);
                if (bits == 4) high_sums[h] = vf_load(to + h * stride + apart);
            }
            UNROLL for (int t = 0; t < T; t++) {
                const uint8_t *codes = tokens.entry[t] + g * size * bits / 8 + d;
                vf low, high;
                if (bits == 8) low = vf_from_i8((const int8_t *)codes);
                else nibbles(codes, &low, &high);
                UNROLL for (int h = 0; h < H; h++) {
                    low_sums[h] = vf_fma(shares[h][t], low, low_sums[h]);
                    if (bits == 4) high_sums[h] = vf_fma(shares[h][t], high, high_sums[h]);
                }
            }
            UNROLL for (int h = 0; h < H; h++) {
                vf_store(to + h * stride, low_sums[h]);
                if (bits == 4) vf_store(to + h * stride + apart, high_sums[h]);
            }
        }
    }
}

#endif
