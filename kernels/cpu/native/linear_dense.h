/* Products over FP32, BF16 and FP16 weights [num_out, num_in] for few rows: every weight is read
 * once from memory and widened in registers. Each (row, output) sums in the same two accumulators
 * whatever the number of rows, so a row's result does not depend on its neighbours. */
#ifndef PS_LINEAR_DENSE_H
#define PS_LINEAR_DENSE_H

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

/* N outputs from `first_out` times M rows from `row`. */
INLINE void dense_block(int N, int M, int format, const ps_linear *op, int64_t first_out, int64_t row) {
    const ps_weight *w = &op->weight;
    const int64_t num_in = w->num_in;
    vf even[4][4], odd[4][4];
    UNROLL for (int n = 0; n < N; n++)
        UNROLL for (int m = 0; m < M; m++) even[n][m] = odd[n][m] = vf_zero();
    int64_t k = 0;
    for (; k + 2 * VF_LANES <= num_in; k += 2 * VF_LANES) {
        UNROLL for (int n = 0; n < N; n++) {
            vf first = load_as_float(format, w->data, (first_out + n) * num_in + k);
            vf second = load_as_float(format, w->data, (first_out + n) * num_in + k + VF_LANES);
            UNROLL for (int m = 0; m < M; m++) {
                const float *x = op->x + (row + m) * op->x_stride + k;
                even[n][m] = vf_fma(first, vf_load(x), even[n][m]);
                odd[n][m] = vf_fma(second, vf_load(x + VF_LANES), odd[n][m]);
            }
        }
    }
    UNROLL for (int n = 0; n < N; n++) {
        UNROLL for (int m = 0; m < M; m++) {
            float sum = vf_sum(vf_add(even[n][m], odd[n][m]));
            const float *x = op->x + (row + m) * op->x_stride;
            for (int64_t i = k; i < num_in; i++)
                sum += x[i] * scalar_as_float(format, w->data, (first_out + n) * num_in + i);
            if (op->bias) sum += op->bias[first_out + n];
            op->out[(row + m) * op->out_stride + first_out + n] = sum;
        }
    }
}

INLINE void dense_outputs(int format, const ps_linear *op, int64_t begin, int64_t end) {
    int64_t out = begin;
    for (; out + 4 <= end; out += 4) { /* weights of 4 outputs stay in cache for all rows */
        int64_t row = 0;
        for (; row + 4 <= op->rows; row += 4)
            for (int n = 0; n < 4; n++) dense_block(1, 4, format, op, out + n, row);
        for (; row + 2 <= op->rows; row += 2)
            for (int n = 0; n < 4; n += 2) dense_block(2, 2, format, op, out + n, row);
        for (; row < op->rows; row++) dense_block(4, 1, format, op, out, row);
    }
    for (; out < end; out++)
        for (int64_t row = 0; row < op->rows; row++) dense_block(1, 1, format, op, out, row);
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

static void embed_dense(const ps_weight *w, int64_t id, float *out) {
    for (int64_t i = 0; i < w->num_in; i++)
        out[i] = scalar_as_float(w->format, w->data, id * w->num_in + i);
}

#endif
