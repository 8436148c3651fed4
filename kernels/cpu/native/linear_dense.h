/* Products over FP32, BF16 and FP16 weights [num_out, num_in] for few rows: every weight is read
 * once from memory and widened in registers. Each (row, output) sums in the same two accumulators
 * whatever the number of rows, so a row's result does not depend on its neighbours. */
#ifndef PS_LINEAR_DENSE_H
#define PS_LINEAR_DENSE_H

#include <stdlib.h>

#include "gemm.h"
#include "ops.h"
#include "simd.h"

INLINE vf load_as_float(int format, const void *base, int64_t index) {
    if (format == PS_FP32) return vf_load((const float *)base + index);
    if (format == PS_BF16) return vf_from_bf16((const uint16_t *)base + index);
    return vf_from_fp16((const uint16_t *)base + index);
}

INLINE float scalar_as_float(int format, const void *base, int64_t index) {
    if (format == PS_FP32) return ((const float *)base)[index];
    if (format == PS_BF16) return bf16_to_float(((const uint16_t *)base)[index]);
    return half_to_float((const uint16_t *)base + index);
}

#define STREAMS 4 /* places in memory that are read at once: measured, a third faster than one */

/* S outputs, `apart` from each other, for M rows from `row`. */
INLINE void dense_block(int S, int M, int format, const ps_linear *op, int64_t first, int64_t apart,
                        int64_t row) {
    const ps_weight *w = &op->weight;
    const int64_t num_in = w->num_in;
    const int width = format == PS_FP32 ? 4 : 2;
    vf even[STREAMS][4], odd[STREAMS][4];
    UNROLL for (int s = 0; s < S; s++)
        UNROLL for (int m = 0; m < M; m++) even[s][m] = odd[s][m] = vf_zero();
    int64_t k = 0;
    for (; k + 2 * VF_LANES <= num_in; k += 2 * VF_LANES) {
        UNROLL for (int s = 0; s < S; s++) {
            const int64_t at = (first + s * apart) * num_in + k;
            if (M > 1) __builtin_prefetch((const char *)w->data + at * width + PREFETCH_BYTES);
            vf former = load_as_float(format, w->data, at);
            vf latter = load_as_float(format, w->data, at + VF_LANES);
            UNROLL for (int m = 0; m < M; m++) {
                const float *x = op->x + (row + m) * op->x_stride + k;
                even[s][m] = vf_fma(former, vf_load(x), even[s][m]);
                odd[s][m] = vf_fma(latter, vf_load(x + VF_LANES), odd[s][m]);
            }
        }
    }
    UNROLL for (int s = 0; s < S; s++) {
        const int64_t out = first + s * apart;
        UNROLL for (int m = 0; m < M; m++) {
            float sum = vf_sum(vf_add(even[s][m], odd[s][m]));
            const float *x = op->x + (row + m) * op->x_stride;
            for (int64_t i = k; i < num_in; i++)
                sum += x[i] * scalar_as_float(format, w->data, out * num_in + i);
            if (op->bias) sum += op->bias[out];
            op->out[(row + m) * op->out_stride + out] = sum;
        }
    }
}

/* One row reads several streams of memory, which is faster than one; with more rows outputs come in
 * the order they lie in memory, and a weight stays in the nearest cache for all rows. */
INLINE void dense_outputs(int format, const ps_linear *op, int64_t begin, int64_t end) {
    const int64_t part = op->rows == 1 ? (end - begin) / STREAMS : 0;
    for (int64_t out = begin; out < begin + part; out++)
        dense_block(STREAMS, 1, format, op, out, part, 0);
    for (int64_t out = begin + STREAMS * part; out < end; out++) {
        int64_t row = 0;
        for (; row + 4 <= op->rows; row += 4) dense_block(1, 4, format, op, out, 0, row);
        for (; row + 2 <= op->rows; row += 2) dense_block(1, 2, format, op, out, 0, row);
        for (; row < op->rows; row++) dense_block(1, 1, format, op, out, 0, row);
    }
}

/* Items are outputs, four at a time. */
#define DENSE_OUTPUTS 4

static void linear_dense(const ps_linear *op, int64_t begin, int64_t end) {
    begin *= DENSE_OUTPUTS;
    end = end * DENSE_OUTPUTS < op->weight.num_out ? end * DENSE_OUTPUTS : op->weight.num_out;
    if (op->weight.format == PS_FP32) dense_outputs(PS_FP32, op, begin, end);
    else if (op->weight.format == PS_BF16) dense_outputs(PS_BF16, op, begin, end);
    else dense_outputs(PS_FP16, op, begin, end);
}

#define FEW_ROWS 8   /* more go through the small GEMM */
#define GEMM_DEPTH 256 /* inputs of a widened tile: 16 KB, the nearest cache */

/* Inputs [k, k + depth) of 16 outputs, widened and transposed: tile [depth, 16]. */
INLINE void widen_tile(int format, const ps_weight *w, int64_t out, int64_t k, int64_t depth,
                       float *tile) {
    for (int n = 0; n < GEMM_COLUMNS; n++) {
        const int64_t at = (out + n) * w->num_in + k;
        int64_t i = 0;
        float lanes[VF_LANES];
        for (; out + n < w->num_out && i + VF_LANES <= depth; i += VF_LANES) {
            vf_store(lanes, load_as_float(format, w->data, at + i));
            for (int j = 0; j < VF_LANES; j++) tile[(i + j) * GEMM_COLUMNS + n] = lanes[j];
        }
        for (; i < depth; i++)
            tile[i * GEMM_COLUMNS + n] =
                out + n < w->num_out ? scalar_as_float(format, w->data, at + i) : 0.0f;
    }
}

/* Items are tiles of 16 outputs, for many rows. */
static void linear_many(const ps_linear *op, int64_t begin, int64_t end) {
    const ps_weight *w = &op->weight;
    float tile[GEMM_DEPTH * GEMM_COLUMNS], *sums = 0, *own = 0;
    for (int64_t t = begin; t < end; t++) {
        const int64_t out = t * GEMM_COLUMNS, open = w->num_out - out;
        const int64_t count = open < GEMM_COLUMNS ? open : GEMM_COLUMNS;
        int64_t stride = op->out_stride;
        sums = op->out + out;
        if (count < GEMM_COLUMNS) { /* the last tile may not write past its row */
            own = own ? own : malloc((size_t)op->rows * GEMM_COLUMNS * sizeof *own);
            sums = own;
            stride = GEMM_COLUMNS;
        }
        for (int64_t k = 0; k < w->num_in; k += GEMM_DEPTH) {
            int64_t depth = w->num_in - k < GEMM_DEPTH ? w->num_in - k : GEMM_DEPTH;
            if (w->format == PS_FP32) widen_tile(PS_FP32, w, out, k, depth, tile);
            else if (w->format == PS_BF16) widen_tile(PS_BF16, w, out, k, depth, tile);
            else widen_tile(PS_FP16, w, out, k, depth, tile);
            gemm_rows(op->rows, depth, op->x + k, op->x_stride, tile, GEMM_COLUMNS, sums, stride, k > 0);
        }
        for (int64_t row = 0; row < op->rows && (op->bias || count < GEMM_COLUMNS); row++)
            for (int64_t n = 0; n < count; n++)
                op->out[row * op->out_stride + out + n] =
                    sums[row * stride + n] + (op->bias ? op->bias[out + n] : 0.0f);
    }
    free(own);
}

static void embed_dense(const ps_weight *w, int64_t id, float *out) {
    for (int64_t i = 0; i < w->num_in; i++)
        out[i] = scalar_as_float(w->format, w->data, id * w->num_in + i);
}

#endif
