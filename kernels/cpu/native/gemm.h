/* FP32 products of many rows: one small kernel for linear layers and for prefill attention. */
#ifndef PS_GEMM_H
#define PS_GEMM_H

#include "simd.h"

#define GEMM_ROWS 6     /* with 16 columns, 12 sums in the registers of AVX2 */
#define GEMM_COLUMNS 16
#define GEMM_PARTS (GEMM_COLUMNS / VF_LANES)

/* c [M, 16] = (add ? c : 0) + a [M, depth] b [depth, 16]. */
INLINE void gemm_block(int M, int64_t depth, const float *a, int64_t a_stride, const float *b,
                       int64_t b_stride, float *c, int64_t c_stride, int add) {
    vf sums[GEMM_ROWS][GEMM_PARTS];
    UNROLL for (int m = 0; m < M; m++)
        UNROLL for (int p = 0; p < GEMM_PARTS; p++)
            sums[m][p] = add ? vf_load(c + m * c_stride + p * VF_LANES) : vf_zero();
    for (int64_t k = 0; k < depth; k++) {
        vf columns[GEMM_PARTS];
        UNROLL for (int p = 0; p < GEMM_PARTS; p++)
            columns[p] = vf_load(b + k * b_stride + p * VF_LANES);
        UNROLL for (int m = 0; m < M; m++) {
            vf x = vf_set(a[m * a_stride + k]);
            UNROLL for (int p = 0; p < GEMM_PARTS; p++) sums[m][p] = vf_fma(x, columns[p], sums[m][p]);
        }
    }
    UNROLL for (int m = 0; m < M; m++)
        UNROLL for (int p = 0; p < GEMM_PARTS; p++)
            vf_store(c + m * c_stride + p * VF_LANES, sums[m][p]);
}

/* The same for any number of rows. */
static void gemm_rows(int64_t rows, int64_t depth, const float *a, int64_t a_stride, const float *b,
                      int64_t b_stride, float *c, int64_t c_stride, int add) {
    int64_t m = 0;
    for (; m + 6 <= rows; m += 6)
        gemm_block(6, depth, a + m * a_stride, a_stride, b, b_stride, c + m * c_stride, c_stride, add);
    for (; m + 2 <= rows; m += 2)
        gemm_block(2, depth, a + m * a_stride, a_stride, b, b_stride, c + m * c_stride, c_stride, add);
    if (m < rows)
        gemm_block(1, depth, a + m * a_stride, a_stride, b, b_stride, c + m * c_stride, c_stride, add);
}

#endif
