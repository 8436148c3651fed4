/* Products over INT8 and INT4 weights, for any number of rows.
 *
 * Activations are quantized in blocks of 32 inputs, so that a product is exact in integers. Beside
 * INT8 weights they have 16 bits: the weight is widened to that anyway, and a block's sum stays
 * below 32 * 32767 * 128 < 2^31. Beside INT4 weights they have 8 bits, which halves the
 * instructions; the error is small beside that of the weights.
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
    int64_t codes = (int64_t)w->padded_in * PS_TILE * (w->format == PS_INT4 ? 4 : 8) / 8;
    int64_t groups = w->padded_in / w->group_size;
    return codes + groups * PS_TILE * 2 * (w->has_minimum ? 2 : 1);
}

INLINE int code_bytes(int bits) { return PS_BLOCK * PS_TILE * bits / 8; }

/* A block of activations in words of 4 bytes, each against one word of a weight: 16 pairs of 16-bit
 * codes beside INT8, 8 quads of bytes beside INT4. */
INLINE int words_in_block(int bits) { return bits == 8 ? PS_BLOCK / 2 : PS_BLOCK / 4; }

/* Codes, scale and scaled sum of one block of 32; inputs past num_in count as 0. Words of codes go
 * `word_stride` bytes apart, between those of the rows they are multiplied together with. */
INLINE void quantize_block(int bits, const float *x, int64_t count, uint8_t *codes,
                           int64_t word_stride, float *scale, float *sum) {
    int16_t together[PS_BLOCK]; /* or as many bytes */
    float padded[PS_BLOCK];
    if (count < PS_BLOCK) {
        memset(padded, 0, sizeof padded);
        memcpy(padded, x, (size_t)count * 4);
        x = padded;
    }
    vf largest = vf_zero();
    for (int i = 0; i < PS_BLOCK; i += VF_LANES) largest = vf_max(largest, vf_abs(vf_load(x + i)));
    const float top = vf_max_lane(largest), steps = bits == 16 ? 32767.0f : 127.0f;
    const float inverse = top > 0.0f ? steps / top : 0.0f;
    *scale = top / steps;
    vf total = vf_zero();
    for (int i = 0; i < PS_BLOCK; i += VF_LANES) {
        vi code = vi_round(vf_mul(vf_load(x + i), vf_set(inverse)));
        total = vf_add(total, vi_to_float(code));
        if (bits == 16) vi_store_i16(together + i, code);
        else vi_store_i8((int8_t *)together + i, code);
    }
    *sum = vf_sum(total) * *scale;
    for (int word = 0; word < PS_BLOCK * bits / 32; word++)
        memcpy(codes + word * word_stride, together + 2 * word, 4);
}

/* Rows are multiplied in packs of MAX_ROWS, those left over in one of 4, of 2 and of 1. The pack of
 * a row, and its first one. */
INLINE int pack_of(int64_t rows, int64_t row, int64_t *first) {
    int64_t left = rows % MAX_ROWS;
    *first = row / MAX_ROWS * MAX_ROWS;
    if (*first + MAX_ROWS <= rows) return MAX_ROWS;
    for (int pack = 4; pack > 1; left %= pack, pack /= 2) {
        if (left < pack) continue;
        if (row < *first + pack) return pack;
        *first += pack;
    }
    return 1;
}

/* Items are blocks of rows' inputs. */
static void quantize_rows(const ps_linear *op, int64_t begin, int64_t end) {
    const int bits = op->weight.format == PS_INT8 ? 16 : 8;
    const int64_t blocks = op->weight.padded_in / PS_BLOCK, block_bytes = PS_BLOCK * bits / 8;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / blocks, block = i % blocks, start = block * PS_BLOCK;
        int64_t left = op->weight.num_in - start, count = left < PS_BLOCK ? left : PS_BLOCK;
        int64_t first;
        const int pack = pack_of(op->rows, row, &first);
        uint8_t *codes = op->codes + (first * blocks + block * pack) * block_bytes + (row - first) * 4;
        const float *x = op->x + row * op->x_stride + start;
        if (bits == 16) quantize_block(16, x, count, codes, 4 * pack, op->scales + i, op->sums + i);
        else quantize_block(8, x, count, codes, 4 * pack, op->scales + i, op->sums + i);
    }
}

/* acc[m][p] = the 32 inputs of one block, exact in integers. x [words, M] words. */
INLINE void block_products(int M, int bits, const uint8_t *codes, const uint8_t *x,
                           vi acc[][PARTS]) {
    UNROLL for (int m = 0; m < M; m++)
        UNROLL for (int p = 0; p < PARTS; p++) acc[m][p] = vi_zero();
    for (int word = 0; bits == 8 && word < PS_BLOCK / 2; word++) {
        vi w[PARTS];
        UNROLL for (int p = 0; p < PARTS; p++)
            w[p] = pair_i8((const int8_t *)codes + (word * PS_TILE + p * VF_LANES) * 2);
        UNROLL for (int m = 0; m < M; m++) {
            vi xs = word_broadcast(x + (word * M + m) * 4);
            UNROLL for (int p = 0; p < PARTS; p++) acc[m][p] = pair_dot(acc[m][p], w[p], xs);
        }
    }
    if (bits == 8) return;
    UNROLL for (int word = 0; word < PS_BLOCK / 4; word++) {
        /* A byte of nibbles holds input i in its low half and i + 16 in its high one. */
        const int high = word >= PS_BLOCK / 8, at = word % (PS_BLOCK / 8);
        vi w[PARTS];
        UNROLL for (int p = 0; p < PARTS; p++) {
            w[p] = quad_u8(codes + (at * PS_TILE + p * VF_LANES) * 4);
            w[p] = high ? quad_high_nibble(w[p]) : quad_low_nibble(w[p]);
        }
        UNROLL for (int m = 0; m < M; m++) {
            vi xs = word_broadcast(x + (word * M + m) * 4);
            UNROLL for (int p = 0; p < PARTS; p++) acc[m][p] = quad_dot(acc[m][p], w[p], xs);
        }
    }
    UNROLL for (int m = 0; m < M; m++)
        UNROLL for (int p = 0; p < PARTS; p++) acc[m][p] = quad_total(acc[m][p]);
}

/* What has been summed for one tile of outputs. */
typedef struct {
    const uint8_t *at; /* where the next codes of the tile are */
    vf group[MAX_ROWS][PARTS];
    vf out[MAX_ROWS][PARTS];
} tile_sums;

INLINE void begin_group(int M, tile_sums *sums) {
    UNROLL for (int m = 0; m < M; m++)
        UNROLL for (int p = 0; p < PARTS; p++) sums->group[m][p] = vf_zero();
}

/* Several rows compute for so long that the processor does not look far enough ahead itself. For one
 * it does; there weights are only marked as read once, so that they displace less of the rest. */
INLINE void ask_for_weights(const uint8_t *at, int M) {
    if (M > 1) __builtin_prefetch(at + PREFETCH_BYTES);
    else __builtin_prefetch(at + PREFETCH_BYTES / 4, 0, 0);
}

INLINE void add_block(int M, int bits, const uint8_t *x, const float *scales, int64_t blocks,
                      tile_sums *sums) {
    vi acc[MAX_ROWS][PARTS];
    for (int byte = 0; byte < code_bytes(bits); byte += 64)
        ask_for_weights(sums->at + byte, M);
    block_products(M, bits, sums->at, x, acc);
    sums->at += code_bytes(bits);
    UNROLL for (int m = 0; m < M; m++) {
        vf scale = vf_set(scales[m * blocks]);
        UNROLL for (int p = 0; p < PARTS; p++)
            sums->group[m][p] = vf_fma(vi_to_float(acc[m][p]), scale, sums->group[m][p]);
    }
}

/* out += group * scale + minimum * (sum of its inputs). `x_sums` begin with its first block. */
INLINE void end_group(int M, int blocks_in_group, const ps_weight *w, const float *x_sums,
                      int64_t blocks, tile_sums *sums) {
    const uint16_t *halves = (const uint16_t *)sums->at;
    UNROLL for (int p = 0; p < PARTS; p++) {
        vf scale = vf_from_fp16(halves + p * VF_LANES);
        UNROLL for (int m = 0; m < M; m++)
            sums->out[m][p] = vf_fma(sums->group[m][p], scale, sums->out[m][p]);
    }
    sums->at += PS_TILE * 2;
    if (!w->has_minimum) return;
    UNROLL for (int m = 0; m < M; m++) {
        float sum = x_sums[m * blocks];
        for (int b = 1; b < blocks_in_group; b++) sum += x_sums[m * blocks + b];
        UNROLL for (int p = 0; p < PARTS; p++) {
            vf minimum = vf_from_fp16(halves + PS_TILE + p * VF_LANES);
            sums->out[m][p] = vf_fma(minimum, vf_set(sum), sums->out[m][p]);
        }
    }
    sums->at += PS_TILE * 2;
}

INLINE void store_tile(int M, const ps_linear *op, int64_t first_out, int64_t row,
                       const tile_sums *sums) {
    const int64_t open = op->weight.num_out - first_out, count = open < PS_TILE ? open : PS_TILE;
    UNROLL for (int m = 0; m < M; m++) {
        float *to = op->out + (row + m) * op->out_stride + first_out, lanes[PS_TILE];
        const int whole = count == PS_TILE && !op->bias;
        UNROLL for (int p = 0; p < PARTS; p++)
            vf_store((whole ? to : lanes) + p * VF_LANES, sums->out[m][p]);
        for (int64_t i = 0; !whole && i < count; i++)
            to[i] = lanes[i] + (op->bias ? op->bias[first_out + i] : 0.0f);
    }
}

/* S tiles that start at `tile`, `apart` tiles from each other, for M rows that start at `row`. */
INLINE void grouped_products(int S, int M, int bits, int blocks_in_group, const ps_linear *op,
                             int64_t tile, int64_t apart, int64_t row) {
    const ps_weight *w = &op->weight;
    const int64_t blocks = w->padded_in / PS_BLOCK, size = tile_bytes(w);
    const int words = words_in_block(bits);
    const uint8_t *x = op->codes + row * blocks * words * 4;
    const float *scales = op->scales + row * blocks, *x_sums = op->sums + row * blocks;
    tile_sums sums[2];
    UNROLL for (int s = 0; s < S; s++) {
        sums[s].at = (const uint8_t *)w->data + (tile + s * apart) * size;
        UNROLL for (int m = 0; m < M; m++)
            UNROLL for (int p = 0; p < PARTS; p++) sums[s].out[m][p] = vf_zero();
    }
    for (int64_t block = 0; block < blocks; block += blocks_in_group) {
        UNROLL for (int s = 0; s < S; s++) begin_group(M, &sums[s]);
        for (int64_t b = block; b < block + blocks_in_group; b++)
            UNROLL for (int s = 0; s < S; s++)
                add_block(M, bits, x + b * M * words * 4, scales + b, blocks, &sums[s]);
        UNROLL for (int s = 0; s < S; s++)
            end_group(M, blocks_in_group, w, x_sums + block, blocks, &sums[s]);
    }
    UNROLL for (int s = 0; s < S; s++)
        store_tile(M, op, (tile + s * apart) * PS_TILE, row, &sums[s]);
}

/* The same; groups of one block are so common that they have code of their own. */
INLINE void tile_products(int S, int M, int bits, const ps_linear *op, int64_t tile, int64_t apart,
                          int64_t row) {
    const int per_group = op->weight.group_size / PS_BLOCK;
    if (per_group == 1) grouped_products(S, M, bits, 1, op, tile, apart, row);
    else grouped_products(S, M, bits, per_group, op, tile, apart, row);
}

INLINE void tile_rows(int bits, const ps_linear *op, int64_t tile, int64_t row, int64_t end) {
    for (; row + MAX_ROWS <= end; row += MAX_ROWS) tile_products(1, MAX_ROWS, bits, op, tile, 0, row);
    if (row + 4 <= end) tile_products(1, 4, bits, op, tile, 0, row);
    row += (end - row) / 4 * 4;
    if (row + 2 <= end) tile_products(1, 2, bits, op, tile, 0, row);
    row += (end - row) / 2 * 2;
    if (row < end) tile_products(1, 1, bits, op, tile, 0, row);
}

/* One row over all tiles: reading is the cost, and two streams of memory are read faster than one. */
INLINE void one_row(int bits, const ps_linear *op, int64_t begin, int64_t end) {
    const int64_t half = (end - begin) / 2;
    for (int64_t t = begin; t < begin + half; t++) tile_products(2, 1, bits, op, t, half, 0);
    if (begin + 2 * half < end) tile_products(1, 1, bits, op, end - 1, 0, 0);
}

/* Items are tiles. A block of rows stays in cache while all tiles pass. */
INLINE void linear_tiles(int bits, const ps_linear *op, int64_t begin, int64_t end) {
    if (op->rows == 1) {
        one_row(bits, op, begin, end);
        return;
    }
    for (int64_t row = 0; row < op->rows; row += ROW_BLOCK) {
        const int64_t last = row + ROW_BLOCK < op->rows ? row + ROW_BLOCK : op->rows;
        for (int64_t t = begin; t < end; t++) tile_rows(bits, op, t, row, last);
    }
}

static void linear_grouped(const ps_linear *op, int64_t begin, int64_t end) {
    if (op->weight.format == PS_INT8) linear_tiles(8, op, begin, end);
    else linear_tiles(4, op, begin, end);
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
                uint8_t byte = codes[block * PS_BLOCK / 2 * PS_TILE + half / 4 * 4 * PS_TILE +
                                     lane * 4 + half % 4];
                code = inner < PS_BLOCK / 2 ? byte & 15 : byte >> 4;
            }
            out[k + i] = code * scale[lane] + minimum[lane];
        }
    }
}

/* One input of one vector of outputs, into its row of out [num_in, num_out]. */
INLINE void expand_input(vi code, vf scale, vf minimum, int64_t count, int to_bf16, void *out,
                         int64_t at) {
    vf value = vf_fma(vi_to_float(code), scale, minimum);
    if (!to_bf16 && count == VF_LANES) {
        vf_store((float *)out + at, value);
        return;
    }
    float lanes[VF_LANES];
    vf_store(lanes, value);
    if (!to_bf16) memcpy((float *)out + at, lanes, (size_t)count * 4);
    else for (int64_t n = 0; n < count; n++) ((uint16_t *)out)[at + n] = float_to_bf16(lanes[n]);
}

/* Input k of a group for one vector of outputs. */
INLINE vi code_of(int bits, const uint8_t *codes, int64_t k, int p) {
    if (bits == 8) {
        vi pair = pair_i8((const int8_t *)codes + (k / 2 * PS_TILE + p * VF_LANES) * 2);
        return k % 2 ? pair_second(pair) : pair_first(pair);
    }
    const int64_t half = k % (PS_BLOCK / 2), block = k / PS_BLOCK * (PS_BLOCK / 2) * PS_TILE;
    vi bytes = quad_u8(codes + block + (half / 4 * PS_TILE + p * VF_LANES) * 4);
    bytes = k % PS_BLOCK < PS_BLOCK / 2 ? quad_low_nibble(bytes) : quad_high_nibble(bytes);
    return quad_lane(bytes, (int)(half % 4));
}

INLINE int64_t tiles_of(const ps_weight *w) { return (w->num_out + PS_TILE - 1) / PS_TILE; }

INLINE void expand_tile(int bits, const ps_expand *op, int64_t t) {
    const ps_weight *w = &op->weight;
    const int64_t bytes = (int64_t)w->group_size * PS_TILE * bits / 8;
    const uint8_t *codes = (const uint8_t *)w->data + t * tile_bytes(w);
    for (int64_t first = 0; first < w->padded_in; first += w->group_size) {
        const uint16_t *halves = (const uint16_t *)(codes + bytes);
        const int64_t left = w->num_in - first, inputs = left < w->group_size ? left : w->group_size;
        for (int p = 0; p < PARTS; p++) {
            const int64_t out = t * PS_TILE + p * VF_LANES, open = w->num_out - out;
            const int64_t count = open < VF_LANES ? open : VF_LANES;
            if (count <= 0) break;
            vf scale = vf_from_fp16(halves + p * VF_LANES);
            vf minimum = w->has_minimum ? vf_from_fp16(halves + PS_TILE + p * VF_LANES) : vf_zero();
            for (int64_t k = 0; k < inputs; k++)
                expand_input(code_of(bits, codes, k, p), scale, minimum, count, op->to_bf16, op->out,
                             (first + k) * w->num_out + out);
        }
        codes += bytes + PS_TILE * 2 * (w->has_minimum ? 2 : 1);
    }
}

static void expand(const ps_expand *op, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
        if (op->weight.format == PS_INT4) expand_tile(4, op, t);
        else expand_tile(8, op, t);
    }
}

#endif
