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
    uint16_t padded[VF_LANES] = {((const uint16_t *)base)[index]};
    float lanes[VF_LANES];
    vf_store(lanes, vf_from_fp16(padded));
    return lanes[0];
}

/* One output for M rows from `row`. */
INLINE void dense_block(int M, int format, const ps_linear *op, int64_t out, int64_t row) {
    const ps_weight *w = &op->weight;
    const int64_t num_in = w->num_in, start = out * num_in;
    const int width = format == PS_FP32 ? 4 : 2;
    vf even[4], odd[4];
    UNROLL for (int m = 0; m < M; m++) even[m] = odd[m] = vf_zero();
    int64_t k = 0;
    for (; k + 2 * VF_LANES <= num_in; k += 2 * VF_LANES) {
        __builtin_prefetch((const char *)w->data + (start + k) * width + PREFETCH_BYTES);
        vf first = load_as_float(format, w->data, start + k);
        vf second = load_as_float(format, w->data, start + k + VF_LANES);
        UNROLL for (int m = 0; m < M; m++) {
            const float *x = op->x + (row + m) * op->x_stride + k;
            even[m] = vf_fma(first, vf_load(x), even[m]);
            odd[m] = vf_fma(second, vf_load(x + VF_LANES), odd[m]);
        }
    }
    UNROLL for (int m = 0; m < M; m++) {
        float sum = vf_sum(vf_add(even[m], odd[m]));
        const float *x = op->x + (row + m) * op->x_stride;
        for (int64_t i = k; i < num_in; i++)
            sum += x[i] * scalar_as_float(format, w->data, start + i);
        if (op->bias) sum += op->bias[out];
        op->out[(row + m) * op->out_stride + out] = sum;
    }
}

/* One output after the other, in the order they lie in memory: four at once, which is as many
 * streams, reads a third less per second. A weight stays in the nearest cache for all rows. */
INLINE void dense_outputs(int format, const ps_linear *op, int64_t begin, int64_t end) {
    for (int64_t out = begin; out < end; out++) {
        int64_t row = 0;
        for (; row + 4 <= op->rows; row += 4) dense_block(4, format, op, out, row);
        for (; row + 2 <= op->rows; row += 2) dense_block(2, format, op, out, row);
        for (; row < op->rows; row++) dense_block(1, format, op, out, row);
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
