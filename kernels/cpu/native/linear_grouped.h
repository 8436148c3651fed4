/* Products over INT8 and INT4 weights, for any number of rows.
 *
 * Activations are quantized to 16 bits in blocks of 32 inputs, so that a product is exact in
 * integers: two inputs at a time are multiplied and added into 32 bits, a block at most
 * 32 * 32767 * 127 < 2^31. Sixteen bits are as fast as eight here (the weight is widened either
 * way) and keep decode equal to an unquantized product to about four digits.
 *
 * A row's result depends on nothing but that row: whatever the number of rows, it is the same
 * sequence of operations.
 */
#ifndef PS_LINEAR_GROUPED_H
#define PS_LINEAR_GROUPED_H

#include <stdlib.h>

#include "ops.h"
#include "simd.h"

#define PARTS (PS_TILE / VF_LANES) /* vectors that cover a tile */
#define MAX_ROWS 6                 /* rows treated at once: AVX2 has registers for 12 sums */
#define ROW_BLOCK (16 * MAX_ROWS)  /* rows whose activations stay in cache while weights pass */

INLINE int64_t tile_bytes(const ps_weight *w) {
    int64_t codes = (int64_t)w->padded_in * PS_TILE * (w->format == PS_INT4 ? 1 : 2) / 2;
    int64_t groups = w->padded_in / w->group_size;
    return codes + groups * PS_TILE * 2 * (w->has_minimum ? 2 : 1);
}

/* 16-bit codes, scale and scaled sum of one block of 32; inputs past num_in count as 0. Pairs of
 * codes go `pair_stride` apart, between those of the rows they are multiplied together with. */
INLINE void quantize_block(const float *x, int64_t count, int16_t *codes, int64_t pair_stride,
                           float *scale, float *sum) {
    int16_t together[PS_BLOCK];
    float padded[PS_BLOCK];
    if (count < PS_BLOCK) {
        memset(padded, 0, sizeof padded);
        memcpy(padded, x, (size_t)count * 4);
        x = padded;
    }
    vf largest = vf_zero();
    for (int i = 0; i < PS_BLOCK; i += VF_LANES) largest = vf_max(largest, vf_abs(vf_load(x + i)));
    float top = vf_max_lane(largest);
    float inverse = top > 0.0f ? 32767.0f / top : 0.0f;
    *scale = top / 32767.0f;
    vf total = vf_zero();
    for (int i = 0; i < PS_BLOCK; i += VF_LANES) {
        vi code = vi_round(vf_mul(vf_load(x + i), vf_set(inverse)));
        total = vf_add(total, vi_to_float(code));
        vi_store_i16(together + i, code);
    }
    *sum = vf_sum(total) * *scale;
    for (int i = 0; i < PS_BLOCK; i += 2) memcpy(codes + i / 2 * pair_stride, together + i, 4);
}

/* Rows are multiplied MAX_ROWS at a time; the last pack may be smaller. */
INLINE int64_t rows_in_pack(int64_t rows, int64_t first) {
    return rows - first < MAX_ROWS ? rows - first : MAX_ROWS;
}

/* Items are blocks of rows' inputs. */
static void quantize_rows(const ps_linear *op, int64_t begin, int64_t end) {
    int64_t blocks = op->weight.padded_in / PS_BLOCK;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / blocks, start = i % blocks * PS_BLOCK;
        int64_t left = op->weight.num_in - start;
        int64_t first = row / MAX_ROWS * MAX_ROWS, pack = rows_in_pack(op->rows, first);
        int16_t *codes = op->codes + first * op->weight.padded_in + start * pack + (row - first) * 2;
        quantize_block(op->x + row * op->x_stride + start, left < PS_BLOCK ? left : PS_BLOCK, codes,
                       2 * pack, op->scales + i, op->sums + i);
    }
}

/* acc[m][p] += the 32 inputs of one block, exact in integers. x [16 pairs, M, 2]. */
INLINE void block_products(int M, int bits, const uint8_t *codes, const int16_t *x,
                           vi acc[][PARTS]) {
    if (bits == 8) {
        for (int pair = 0; pair < PS_BLOCK / 2; pair++) {
            vi w[PARTS];
            UNROLL for (int p = 0; p < PARTS; p++)
                w[p] = pair_i8((const int8_t *)codes + pair * 2 * PS_TILE + p * 2 * VF_LANES);
            UNROLL for (int m = 0; m < M; m++) {
                vi xs = pair_broadcast(x + (pair * M + m) * 2);
                UNROLL for (int p = 0; p < PARTS; p++) acc[m][p] = pair_dot(acc[m][p], w[p], xs);
            }
        }
        return;
    }
    /* A byte holds input i in its low nibble and i + 16 in its high one. The bytes are loaded for
     * either half: with both in registers the sums of six rows would not fit. */
    for (int pair = 0; pair < PS_BLOCK / 4; pair++) {
        const uint8_t *bytes = codes + pair * 2 * PS_TILE;
        vi w[PARTS];
        UNROLL for (int p = 0; p < PARTS; p++)
            w[p] = pair_low_nibble(pair_u8(bytes + p * 2 * VF_LANES));
        UNROLL for (int m = 0; m < M; m++) {
            vi xs = pair_broadcast(x + (pair * M + m) * 2);
            UNROLL for (int p = 0; p < PARTS; p++) acc[m][p] = pair_dot(acc[m][p], w[p], xs);
        }
        UNROLL for (int p = 0; p < PARTS; p++)
            w[p] = pair_high_nibble(pair_u8(bytes + p * 2 * VF_LANES));
        UNROLL for (int m = 0; m < M; m++) {
            vi xs = pair_broadcast(x + ((pair + PS_BLOCK / 4) * M + m) * 2);
            UNROLL for (int p = 0; p < PARTS; p++) acc[m][p] = pair_dot(acc[m][p], w[p], xs);
        }
    }
}

/* One tile of outputs for M rows that start at `row`. */
INLINE void tile_product(int M, int bits, const ps_linear *op, const uint8_t *tile, int64_t first_out,
                         int64_t row) {
    const ps_weight *w = &op->weight;
    const int64_t blocks = w->padded_in / PS_BLOCK;
    const int blocks_in_group = w->group_size / PS_BLOCK;
    const int16_t *x = op->codes + row * w->padded_in;
    const float *scales = op->scales + row * blocks, *sums = op->sums + row * blocks;
    vf out[MAX_ROWS][PARTS];
    UNROLL for (int m = 0; m < M; m++)
        UNROLL for (int p = 0; p < PARTS; p++) out[m][p] = vf_zero();
    for (int64_t block = 0; block < blocks;) {
        vf group[MAX_ROWS][PARTS];
        UNROLL for (int m = 0; m < M; m++)
            UNROLL for (int p = 0; p < PARTS; p++) group[m][p] = vf_zero();
        const int64_t first_block = block;
        for (int b = 0; b < blocks_in_group; b++, block++) {
            vi acc[MAX_ROWS][PARTS];
            UNROLL for (int m = 0; m < M; m++)
                UNROLL for (int p = 0; p < PARTS; p++) acc[m][p] = vi_zero();
            for (int byte = 0; byte < PS_BLOCK * PS_TILE * bits / 8; byte += 64)
                __builtin_prefetch(tile + byte + PREFETCH_BYTES);
            block_products(M, bits, tile, x + block * PS_BLOCK * M, acc);
            tile += PS_BLOCK * PS_TILE * bits / 8;
            UNROLL for (int m = 0; m < M; m++) {
                vf scale = vf_set(scales[m * blocks + block]);
                UNROLL for (int p = 0; p < PARTS; p++)
                    group[m][p] = vf_fma(vi_to_float(acc[m][p]), scale, group[m][p]);
            }
        }
        const uint16_t *halves = (const uint16_t *)tile;
        UNROLL for (int p = 0; p < PARTS; p++) {
            vf scale = vf_from_fp16(halves + p * VF_LANES);
            UNROLL for (int m = 0; m < M; m++) out[m][p] = vf_fma(group[m][p], scale, out[m][p]);
        }
        tile += PS_TILE * 2;
        if (!w->has_minimum) continue;
        UNROLL for (int p = 0; p < PARTS; p++) {
            vf minimum = vf_from_fp16(halves + PS_TILE + p * VF_LANES);
            UNROLL for (int m = 0; m < M; m++) {
                float sum = 0.0f;
                for (int64_t b = first_block; b < block; b++) sum += sums[m * blocks + b];
                out[m][p] = vf_fma(minimum, vf_set(sum), out[m][p]);
            }
        }
        tile += PS_TILE * 2;
    }
    const int64_t count = w->num_out - first_out < PS_TILE ? w->num_out - first_out : PS_TILE;
    UNROLL for (int m = 0; m < M; m++) {
        float lanes[PS_TILE];
        UNROLL for (int p = 0; p < PARTS; p++) vf_store(lanes + p * VF_LANES, out[m][p]);
        float *to = op->out + (row + m) * op->out_stride + first_out;
        if (op->bias)
            for (int64_t i = 0; i < count; i++) lanes[i] += op->bias[first_out + i];
        memcpy(to, lanes, (size_t)count * 4);
    }
}

INLINE void tile_rows(int bits, const ps_linear *op, const uint8_t *tile, int64_t first_out,
                      int64_t row, int64_t end) {
    for (; row + MAX_ROWS <= end; row += MAX_ROWS) tile_product(MAX_ROWS, bits, op, tile, first_out, row);
    switch (end - row) {
    case 5: tile_product(5, bits, op, tile, first_out, row); break;
    case 4: tile_product(4, bits, op, tile, first_out, row); break;
    case 3: tile_product(3, bits, op, tile, first_out, row); break;
    case 2: tile_product(2, bits, op, tile, first_out, row); break;
    case 1: tile_product(1, bits, op, tile, first_out, row); break;
    }
}

#define UNPACK_ROWS 24 /* from here on INT4 codes are taken apart once for a block of rows */

/* An INT4 tile as an INT8 one with the same scales and minima, at `to`. */
static void unpack_tile(const ps_weight *w, const uint8_t *tile, uint8_t *to) {
    const int64_t half = PS_BLOCK / 2 * PS_TILE, rest = PS_TILE * 2 * (w->has_minimum ? 2 : 1);
    for (int64_t k = 0; k < w->padded_in; k += w->group_size) {
        for (int b = 0; b < w->group_size; b += PS_BLOCK, tile += half, to += 2 * half) {
            for (int64_t i = 0; i < half; i++) {
                to[i] = tile[i] & 15;
                to[half + i] = tile[i] >> 4;
            }
        }
        memcpy(to, tile, (size_t)rest);
        tile += rest;
        to += rest;
    }
}

/* Items are tiles. A block of rows stays in cache while all tiles pass. */
static void linear_grouped(const ps_linear *op, int64_t begin, int64_t end) {
    const ps_weight *w = &op->weight;
    const int64_t size = tile_bytes(w);
    const int unpack = w->format == PS_INT4 && op->rows >= UNPACK_ROWS;
    uint8_t *wide = unpack ? malloc((size_t)(size + (int64_t)w->padded_in * PS_TILE / 2)) : 0;
    for (int64_t row = 0; row < op->rows; row += ROW_BLOCK) {
        int64_t last = row + ROW_BLOCK < op->rows ? row + ROW_BLOCK : op->rows;
        for (int64_t t = begin; t < end; t++) {
            const uint8_t *tile = (const uint8_t *)w->data + t * size;
            if (wide) {
                unpack_tile(w, tile, wide);
                tile_rows(8, op, wide, t * PS_TILE, row, last);
            } else if (w->format == PS_INT8) {
                tile_rows(8, op, tile, t * PS_TILE, row, last);
            } else {
                tile_rows(4, op, tile, t * PS_TILE, row, last);
            }
        }
    }
    free(wide);
}

/* Row `id` of a tiled weight as floats: codes * scale + minimum, exactly as the format says. */
static void embed_grouped(const ps_weight *w, int64_t id, float *out) {
    const uint8_t *tile = (const uint8_t *)w->data + id / PS_TILE * tile_bytes(w);
    const int lane = (int)(id % PS_TILE), bits = w->format == PS_INT4 ? 4 : 8;
    for (int64_t k = 0; k < w->padded_in; k += w->group_size) {
        const uint8_t *codes = tile;
        tile += (int64_t)w->group_size * PS_TILE * bits / 8;
        vf scale_lanes[PARTS], minimum_lanes[PARTS];
        float scale[PS_TILE], minimum[PS_TILE] = {0};
        UNROLL for (int p = 0; p < PARTS; p++) {
            scale_lanes[p] = vf_from_fp16((const uint16_t *)tile + p * VF_LANES);
            vf_store(scale + p * VF_LANES, scale_lanes[p]);
            if (!w->has_minimum) continue;
            minimum_lanes[p] = vf_from_fp16((const uint16_t *)tile + PS_TILE + p * VF_LANES);
            vf_store(minimum + p * VF_LANES, minimum_lanes[p]);
        }
        tile += PS_TILE * 2 * (w->has_minimum ? 2 : 1);
        int64_t count = w->num_in - k < w->group_size ? w->num_in - k : w->group_size;
        for (int64_t i = 0; i < count; i++) {
            float code;
            if (bits == 8) {
                code = ((const int8_t *)codes)[i / 2 * 2 * PS_TILE + lane * 2 + i % 2];
            } else {
                int64_t block = i / PS_BLOCK, inner = i % PS_BLOCK, half = inner % (PS_BLOCK / 2);
                uint8_t byte = codes[block * PS_BLOCK / 2 * PS_TILE + half / 2 * 2 * PS_TILE +
                                     lane * 2 + half % 2];
                code = inner < PS_BLOCK / 2 ? byte & 15 : byte >> 4;
            }
            out[k + i] = code * scale[lane] + minimum[lane];
        }
    }
}

/* A pair of inputs of one vector of outputs, into two rows of out [num_in, num_out]. */
INLINE void expand_pair(vi pair, vf scale, vf minimum, int64_t count, int64_t left, int64_t num_out,
                        int to_bf16, void *out, int64_t at) {
    vf both[2] = {vf_fma(vi_to_float(pair_first(pair)), scale, minimum),
                  vf_fma(vi_to_float(pair_second(pair)), scale, minimum)};
    for (int i = 0; i < 2 && i < left; i++, at += num_out) {
        if (!to_bf16 && count == VF_LANES) {
            vf_store((float *)out + at, both[i]);
            continue;
        }
        float lanes[VF_LANES];
        vf_store(lanes, both[i]);
        if (!to_bf16) memcpy((float *)out + at, lanes, (size_t)count * 4);
        else for (int64_t n = 0; n < count; n++) ((uint16_t *)out)[at + n] = float_to_bf16(lanes[n]);
    }
}

INLINE int64_t tiles_of(const ps_weight *w) { return (w->num_out + PS_TILE - 1) / PS_TILE; }

static void expand_tile(const ps_expand *op, int64_t t) {
    const ps_weight *w = &op->weight;
    const int bits = w->format == PS_INT4 ? 4 : 8;
    const uint8_t *codes = (const uint8_t *)w->data + t * tile_bytes(w);
    for (int64_t first = 0; first < w->padded_in; first += w->group_size) {
        const int64_t code_bytes = (int64_t)w->group_size * PS_TILE * bits / 8;
        const uint16_t *halves = (const uint16_t *)(codes + code_bytes);
        for (int p = 0; p < PARTS; p++) {
            const int64_t out = t * PS_TILE + p * VF_LANES, open = w->num_out - out;
            const int64_t count = open < VF_LANES ? open : VF_LANES;
            if (count <= 0) break;
            vf scale = vf_from_fp16(halves + p * VF_LANES);
            vf minimum = vf_zero();
            if (w->has_minimum) minimum = vf_from_fp16(halves + PS_TILE + p * VF_LANES);
            for (int64_t k = 0; k < w->group_size; k += 2) {
                vi pair;
                if (bits == 8) {
                    pair = pair_i8((const int8_t *)codes + k * PS_TILE + p * 2 * VF_LANES);
                } else {
                    int64_t half = k % (PS_BLOCK / 2);
                    const uint8_t *bytes = codes + k / PS_BLOCK * (PS_BLOCK / 2) * PS_TILE +
                                           half * PS_TILE + p * 2 * VF_LANES;
                    pair = k % PS_BLOCK < PS_BLOCK / 2 ? pair_low_nibble(pair_u8(bytes))
                                                       : pair_high_nibble(pair_u8(bytes));
                }
                expand_pair(pair, scale, minimum, count, w->num_in - first - k, w->num_out,
                            op->to_bf16, op->out, (first + k) * w->num_out + out);
            }
        }
        codes += code_bytes + PS_TILE * 2 * (w->has_minimum ? 2 : 1);
    }
}

static void expand(const ps_expand *op, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) expand_tile(op, t);
}

#endif
