/* Quantized keys and values: writing entries, and reading them one token at a time. The layouts are
 * those of kernels/kv_entries.py; heads are a whole number of 16 dims. */
#ifndef PS_KV_ENTRIES_H
#define PS_KV_ENTRIES_H

#include "linear_dense.h"
#include "ops.h"

/* One head of a token, by token: codes, then scale and offset of each group. */
INLINE int64_t token_entry_bytes(const ps_kv *kv, int dim) {
    return dim * (kv->format == PS_INT8 ? 8 : 4) / 8 + 4 * (dim / kv->group_size);
}

/* One head of a block, by channel: codes of its tokens, then dim scales, then dim offsets. */
INLINE int64_t channel_entry_bytes(int block_size, int dim) {
    return (int64_t)block_size * dim / 2 + 4 * dim;
}

/* Bytes from one token of a block to the next, all heads. */
INLINE int64_t token_stride(const ps_kv *kv, int num_kv_heads, int dim) {
    if (kv->format >= PS_INT8) return num_kv_heads * token_entry_bytes(kv, dim);
    return (int64_t)num_kv_heads * dim * (kv->format == PS_FP32 ? 4 : 2);
}

/* Round to FP16 in place; what is written comes back. A scale of 0 becomes 1: groups of one value. */
INLINE vf round_to_half(vf x, uint16_t *half, int is_scale) {
    uint16_t lanes[VF_LANES];
    vf_to_fp16(lanes, x);
    for (int i = 0; is_scale && i < VF_LANES; i++)
        if ((lanes[i] & 0x7fff) == 0) lanes[i] = 0x3c00;
    memcpy(half, lanes, sizeof lanes);
    return vf_from_fp16(lanes);
}

/* Codes of one group, and its scale and offset. */
static void quantize_group(int bits, const float *x, int size, uint8_t *codes, uint8_t *params) {
    vf low = vf_load(x), high = low;
    for (int i = VF_LANES; i < size; i += VF_LANES) {
        low = vf_min(low, vf_load(x + i));
        high = vf_max(high, vf_load(x + i));
    }
    const float largest = vf_max_lane(high), least = -vf_max_lane(vf_sub(vf_zero(), low));
    uint16_t half_scale[VF_LANES], half_offset[VF_LANES];
    vf offset = round_to_half(vf_set(bits == 8 ? (least + largest) / 2 : least), half_offset, 0);
    vf above = vf_sub(vf_set(largest), offset), below = vf_sub(offset, vf_set(least));
    vf reach = bits == 8 ? vf_max(above, below) : above;
    vf scale = round_to_half(vf_div(reach, vf_set(bits == 8 ? 127.5f : 15.0f)), half_scale, 1);
    const vf first = vf_set(bits == 8 ? -128.0f : 0.0f), last = vf_set(bits == 8 ? 127.0f : 15.0f);
    for (int i = 0; i < (bits == 8 ? size : size / 2); i += VF_LANES) {
        vf code = vf_div(vf_sub(vf_load(x + i), offset), scale);
        vi rounded = vi_round(vf_min(vf_max(code, first), last));
        if (bits == 8) {
            vi_store_i8((int8_t *)codes + i, rounded);
            continue;
        }
        code = vf_div(vf_sub(vf_load(x + size / 2 + i), offset), scale);
        int32_t lows[VF_LANES], highs[VF_LANES];
        vi_store(lows, rounded);
        vi_store(highs, vi_round(vf_min(vf_max(code, first), last)));
        for (int l = 0; l < VF_LANES; l++) codes[i + l] = (uint8_t)(lows[l] | highs[l] << 4);
    }
    memcpy(params, half_scale, 2);
    memcpy(params + 2, half_offset, 2);
}

/* One head of a token in 8 or 4 bits. */
static void store_token_groups(const ps_kv *kv, const float *x, int dim, int64_t entry) {
    const int bits = kv->format == PS_INT8 ? 8 : 4, size = kv->group_size;
    uint8_t *to = (uint8_t *)kv->data + entry * token_entry_bytes(kv, dim);
    for (int group = 0; group * size < dim; group++)
        quantize_group(bits, x + group * size, size, to + group * size * bits / 8,
                       to + dim * bits / 8 + 4 * group);
}

/* One head of a full block by channel, from BF16 keys `stride` apart. */
static void store_channel_groups(const uint16_t *keys, int64_t stride, int block_size, int dim,
                                 uint8_t *to) {
    uint8_t codes[block_size * dim];
    uint8_t *scales = to + block_size * dim / 2, *offsets = scales + 2 * dim;
    for (int d = 0; d < dim; d += VF_LANES) {
        vf low = vf_from_bf16(keys + d), high = low;
        for (int t = 1; t < block_size; t++) {
            low = vf_min(low, vf_from_bf16(keys + t * stride + d));
            high = vf_max(high, vf_from_bf16(keys + t * stride + d));
        }
        uint16_t halves[VF_LANES];
        vf offset = round_to_half(low, halves, 0);
        memcpy(offsets + 2 * d, halves, sizeof halves);
        vf scale = round_to_half(vf_div(vf_sub(high, offset), vf_set(15.0f)), halves, 1);
        memcpy(scales + 2 * d, halves, sizeof halves);
        for (int t = 0; t < block_size; t++) {
            vf code = vf_div(vf_sub(vf_from_bf16(keys + t * stride + d), offset), scale);
            int32_t lanes[VF_LANES];
            vi_store(lanes, vi_round(vf_min(vf_max(code, vf_zero()), vf_set(15.0f))));
            for (int l = 0; l < VF_LANES; l++) codes[t * dim + d + l] = (uint8_t)lanes[l];
        }
    }
    for (int t = 0; t < block_size; t++)
        for (int i = 0; i < dim / 2; i++)
            to[t * dim / 2 + i] = (uint8_t)(codes[t * dim + i] | codes[t * dim + dim / 2 + i] << 4);
}

/* The low and the high nibbles of VF_LANES bytes. */
INLINE void nibbles(const uint8_t *p, vf *low, vf *high) {
    vi bytes = vi_from_u8(p);
    *low = vi_to_float(quad_low_nibble(bytes));
    *high = vi_to_float(quad_high_nibble(bytes));
}

/* One head of a token as floats, from any format that is kept by token. */
static void widen_token(const ps_kv *kv, int64_t entry, int dim, float *out) {
    if (kv->format < PS_INT8) {
        for (int d = 0; d < dim; d += VF_LANES)
            vf_store(out + d, load_as_float(kv->format, kv->data, entry * dim + d));
        return;
    }
    const int size = kv->group_size, bits = kv->format == PS_INT8 ? 8 : 4;
    const uint8_t *from = (const uint8_t *)kv->data + entry * token_entry_bytes(kv, dim);
    for (int group = 0; group * size < dim; group++) {
        const uint8_t *codes = from + group * size * bits / 8;
        const uint8_t *params = from + dim * bits / 8 + 4 * group;
        vf scale = vf_set(half_to_float(params)), offset = vf_set(half_to_float(params + 2));
        float *to = out + group * size;
        for (int i = 0; i < (bits == 8 ? size : size / 2); i += VF_LANES) {
            vf low, high;
            if (bits == 8) {
                vf_store(to + i, vf_fma(vf_from_i8((const int8_t *)codes + i), scale, offset));
                continue;
            }
            nibbles(codes + i, &low, &high);
            vf_store(to + i, vf_fma(low, scale, offset));
            vf_store(to + size / 2 + i, vf_fma(high, scale, offset));
        }
    }
}

/* One head of a token of a full block as floats, by channel; `entry` is the head's block. */
static void widen_channels(const uint8_t *entry, int within, int block_size, int dim, float *out) {
    const uint16_t *scales = (const uint16_t *)(entry + block_size * dim / 2);
    for (int i = 0; i < dim / 2; i += VF_LANES) {
        vf code[2];
        nibbles(entry + within * dim / 2 + i, code, code + 1);
        for (int half = 0; half < 2; half++) {
            const int d = i + half * dim / 2;
            vf_store(out + d,
                     vf_fma(code[half], vf_from_fp16(scales + d), vf_from_fp16(scales + dim + d)));
        }
    }
}

#endif
