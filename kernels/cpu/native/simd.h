/* One vector vocabulary for all instruction levels.
 *
 * A `vf` holds VF_LANES floats, a `vi` as many int32. Every function is one or a few instructions.
 * The level is chosen by the compiler's flags; kernels are written once against these names.
 *
 * In products of integers a lane is an output. A `pair_dot` adds two products of 16-bit values to
 * it. A `quad_dot` adds four, of codes 0..15 with signed bytes; its sums are `quad_total` of what
 * at most eight of them have added up, since AVX2 adds in 16 bits: 8 * 2 * 15 * 128 < 2^15.
 */
#ifndef PS_SIMD_H
#define PS_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
/* Before loops of constant length over register arrays, which must not become memory. */
#define UNROLL _Pragma("GCC unroll 16")

/* How far ahead of its use a weight is asked for: measured, worth 5 to 20 % of bandwidth. */
#define PREFETCH_BYTES 4096

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__)

#include <immintrin.h>
#define PS_LEVEL "avx512vnni"
#define VF_LANES 16
typedef __m512 vf;
typedef __m512i vi;

INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
INLINE vf vf_set(float x) { return _mm512_set1_ps(x); }
INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vf vf_abs(vf a) { return _mm512_abs_ps(a); }
INLINE float vf_sum(vf a) { return _mm512_reduce_add_ps(a); }
INLINE float vf_max_lane(vf a) { return _mm512_reduce_max_ps(a); }
INLINE vf vf_from_bf16(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
INLINE vf vf_from_fp16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
INLINE void vf_to_fp16(uint16_t *p, vf x) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
INLINE vi vi_zero(void) { return _mm512_setzero_si512(); }
INLINE vi vi_round(vf x) { return _mm512_cvtps_epi32(x); }
INLINE vf vi_to_float(vi x) { return _mm512_cvtepi32_ps(x); }
INLINE vf vf_scale_exponent(vf x, vi n) {
    vi bits = _mm512_castps_si512(x);
    return _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_slli_epi32(n, 23)));
}
INLINE void vi_store_i16(int16_t *p, vi x) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(x));
}
INLINE vi word_broadcast(const void *p) {
    int32_t word;
    memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
}
INLINE vf vf_from_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
INLINE vi vi_from_u8(const uint8_t *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
INLINE vi pair_i8(const int8_t *p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p));
}
INLINE vi pair_dot(vi acc, vi a, vi b) { return _mm512_dpwssd_epi32(acc, a, b); }
INLINE vi pair_first(vi x) { return _mm512_srai_epi32(_mm512_slli_epi32(x, 16), 16); }
INLINE vi pair_second(vi x) { return _mm512_srai_epi32(x, 16); }
INLINE void vi_store_i8(int8_t *p, vi x) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(x));
}
INLINE vi quad_u8(const uint8_t *p) { return _mm512_loadu_si512(p); }
INLINE vi quad_low_nibble(vi x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
INLINE vi quad_high_nibble(vi x) { return quad_low_nibble(_mm512_srli_epi16(x, 4)); }
INLINE vi quad_dot(vi acc, vi w, vi x) { return _mm512_dpbusd_epi32(acc, w, x); }
INLINE vi quad_total(vi acc) { return acc; }
INLINE vi quad_lane(vi x, int i) {
    return _mm512_and_si512(_mm512_srl_epi32(x, _mm_cvtsi32_si128(8 * i)), _mm512_set1_epi32(255));
}

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>
#define PS_LEVEL "avx2"
#define VF_LANES 8
typedef __m256 vf;
typedef __m256i vi;

INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
INLINE vf vf_set(float x) { return _mm256_set1_ps(x); }
INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
INLINE vf vf_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
INLINE float vf_sum(vf a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
INLINE float vf_max_lane(vf a) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
INLINE vf vf_from_bf16(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
INLINE vf vf_from_fp16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
INLINE void vf_to_fp16(uint16_t *p, vf x) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
INLINE vi vi_zero(void) { return _mm256_setzero_si256(); }
INLINE vi vi_round(vf x) { return _mm256_cvtps_epi32(x); }
INLINE vf vi_to_float(vi x) { return _mm256_cvtepi32_ps(x); }
INLINE vf vf_scale_exponent(vf x, vi n) {
    vi bits = _mm256_castps_si256(x);
    return _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_slli_epi32(n, 23)));
}
INLINE void vi_store_i16(int16_t *p, vi x) {
    __m128i packed = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storeu_si128((__m128i *)p, packed);
}
INLINE vi word_broadcast(const void *p) {
    int32_t word;
    memcpy(&word, p, 4);
    return _mm256_set1_epi32(word);
}
INLINE vf vf_from_i8(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
INLINE vi vi_from_u8(const uint8_t *p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
INLINE vi pair_i8(const int8_t *p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
}
INLINE vi pair_dot(vi acc, vi a, vi b) {
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
    /* Without this GCC loads all inputs first and spills the sums. */
    __asm__("" : "+x"(acc));
    return acc;
}
INLINE vi pair_first(vi x) { return _mm256_srai_epi32(_mm256_slli_epi32(x, 16), 16); }
INLINE vi pair_second(vi x) { return _mm256_srai_epi32(x, 16); }
INLINE void vi_store_i8(int8_t *p, vi x) {
    __m128i packed = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(packed, packed));
}
INLINE vi quad_u8(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE vi quad_low_nibble(vi x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
INLINE vi quad_high_nibble(vi x) { return quad_low_nibble(_mm256_srli_epi16(x, 4)); }
INLINE vi quad_dot(vi acc, vi w, vi x) {
    acc = _mm256_add_epi16(acc, _mm256_maddubs_epi16(w, x));
    __asm__("" : "+x"(acc)); /* as in pair_dot */
    return acc;
}
INLINE vi quad_total(vi acc) { return _mm256_madd_epi16(acc, _mm256_set1_epi16(1)); }
INLINE vi quad_lane(vi x, int i) {
    return _mm256_and_si256(_mm256_srl_epi32(x, _mm_cvtsi32_si128(8 * i)), _mm256_set1_epi32(255));
}

#else /* any processor: the compiler's own vectors of 16 bytes */

#define PS_LEVEL "baseline"
#define VF_LANES 4
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef int16_t i16x8 __attribute__((vector_size(16)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef int8_t i8x8 __attribute__((vector_size(8)));

INLINE vf vf_zero(void) { return (vf){0}; }
INLINE vf vf_set(float x) { return (vf){x, x, x, x}; }
INLINE vf vf_load(const float *p) {
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
INLINE void vf_store(float *p, vf x) { memcpy(p, &x, sizeof x); }
INLINE vf vf_add(vf a, vf b) { return a + b; }
INLINE vf vf_sub(vf a, vf b) { return a - b; }
INLINE vf vf_mul(vf a, vf b) { return a * b; }
INLINE vf vf_div(vf a, vf b) { return a / b; }
INLINE vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
INLINE vf vf_pick(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }
INLINE vf vf_max(vf a, vf b) { return vf_pick(a > b, a, b); }
INLINE vf vf_min(vf a, vf b) { return vf_pick(a < b, a, b); }
INLINE vf vf_abs(vf a) { return (vf)((vi)a & 0x7fffffff); }
INLINE float vf_sum(vf a) { return (a[0] + a[2]) + (a[1] + a[3]); }
INLINE float vf_max_lane(vf a) {
    float m = a[0];
    for (int i = 1; i < 4; i++) m = a[i] > m ? a[i] : m;
    return m;
}
INLINE float fp16_to_float(uint16_t h) {
    /* Shift the mantissa into place and rescale: right for subnormals too (no inf or nan here). */
    uint32_t bits = ((uint32_t)(h & 0x8000) << 16) | ((uint32_t)(h & 0x7fff) << 13);
    float x;
    memcpy(&x, &bits, 4);
    return x * 0x1p112f;
}
INLINE uint16_t float_to_fp16(float x) {
    uint32_t bits, sign;
    memcpy(&bits, &x, 4);
    sign = (bits >> 16) & 0x8000;
    bits &= 0x7fffffff;
    if (bits >= 0x477ff000) return (uint16_t)(sign | (bits > 0x7f800000 ? 0x7e00 : 0x7c00));
    if (bits < 0x38800000) { /* subnormal: let the adder round to the last place */
        float y;
        memcpy(&y, &bits, 4);
        y += 0.5f;
        memcpy(&bits, &y, 4);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    bits += 0xfff + ((bits >> 13) & 1);
    return (uint16_t)(sign | ((bits - 0x38000000) >> 13));
}
INLINE vf vf_from_bf16(const uint16_t *p) {
    vi bits;
    for (int i = 0; i < 4; i++) bits[i] = (int32_t)((uint32_t)p[i] << 16);
    return (vf)bits;
}
INLINE vf vf_from_fp16(const uint16_t *p) {
    vf x;
    for (int i = 0; i < 4; i++) x[i] = fp16_to_float(p[i]);
    return x;
}
INLINE void vf_to_fp16(uint16_t *p, vf x) {
    for (int i = 0; i < 4; i++) p[i] = float_to_fp16(x[i]);
}
INLINE vi vi_zero(void) { return (vi){0}; }
INLINE vi vi_round(vf x) {
    vi n;
    for (int i = 0; i < 4; i++) n[i] = (int32_t)lrintf(x[i]);
    return n;
}
INLINE vf vi_to_float(vi x) { return __builtin_convertvector(x, vf); }
INLINE vf vf_scale_exponent(vf x, vi n) { return (vf)((vi)x + (n << 23)); }
INLINE void vi_store_i16(int16_t *p, vi x) {
    for (int i = 0; i < 4; i++) p[i] = (int16_t)x[i];
}
INLINE vf vf_from_i8(const int8_t *p) { return (vf){p[0], p[1], p[2], p[3]}; }
INLINE vi vi_from_u8(const uint8_t *p) { return (vi){p[0], p[1], p[2], p[3]}; }
INLINE vi pair_i8(const int8_t *p) {
    i8x8 x;
    memcpy(&x, p, 8);
    return (vi) __builtin_convertvector(x, i16x8);
}
INLINE vi word_broadcast(const void *p) {
    int32_t word;
    memcpy(&word, p, 4);
    return (vi){word, word, word, word};
}
INLINE vi pair_dot(vi acc, vi a, vi b) {
    i32x8 products =
        __builtin_convertvector((i16x8)a, i32x8) * __builtin_convertvector((i16x8)b, i32x8);
    vi even = {products[0], products[2], products[4], products[6]};
    vi odd = {products[1], products[3], products[5], products[7]};
    return acc + even + odd;
}
INLINE vi pair_first(vi x) { return (x << 16) >> 16; }
INLINE vi pair_second(vi x) { return x >> 16; }
INLINE void vi_store_i8(int8_t *p, vi x) {
    for (int i = 0; i < 4; i++) p[i] = (int8_t)x[i];
}
INLINE vi quad_u8(const uint8_t *p) {
    vi x;
    memcpy(&x, p, 16);
    return x;
}
INLINE vi quad_low_nibble(vi x) { return x & 0x0f0f0f0f; }
INLINE vi quad_high_nibble(vi x) { return (x >> 4) & 0x0f0f0f0f; }
INLINE vi quad_lane(vi x, int i) { return (x >> (8 * i)) & 255; }
INLINE vi quad_dot(vi acc, vi w, vi x) {
    i16x8 even = (i16x8)(w & 0x00ff00ff) * ((i16x8)x << 8 >> 8), odd = ((i16x8)w >> 8) * ((i16x8)x >> 8);
    return (vi)((i16x8)acc + even + odd);
}
INLINE vi quad_total(vi acc) { return pair_first(acc) + pair_second(acc); }

#endif

INLINE vi vi_load(const void *p) {
    vi x;
    memcpy(&x, p, sizeof x);
    return x;
}

INLINE void vi_store(void *p, vi x) { memcpy(p, &x, sizeof x); }

INLINE float bf16_to_float(uint16_t h) {
    uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

INLINE uint16_t float_to_bf16(float x) { /* round to nearest even, nan stays nan */
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)((bits >> 16) | 64);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* Four floats, one for each of four tokens. */
typedef float f4 __attribute__((vector_size(16)));

INLINE f4 f4_set(float x) { return (f4){x, x, x, x}; }
INLINE f4 f4_load(const float *p) {
    f4 x;
    memcpy(&x, p, 16);
    return x;
}
INLINE void f4_store(float *p, f4 x) { memcpy(p, &x, 16); }

/* The sums of four vectors, their adds shared. */
INLINE f4 vf_sum4(const vf x[4]) {
#if VF_LANES == 16
    vf ab = _mm512_add_ps(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
    vf cd = _mm512_add_ps(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
    vf all = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    __m256 half = _mm256_add_ps(
        _mm512_castps512_ps256(all),
        _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(all), 1)));
    return (f4)_mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
#elif VF_LANES == 8
    vf ab = _mm256_hadd_ps(x[0], x[1]), cd = _mm256_hadd_ps(x[2], x[3]);
    vf all = _mm256_hadd_ps(ab, cd);
    return (f4)_mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
#else
    return (f4){vf_sum(x[0]), vf_sum(x[1]), vf_sum(x[2]), vf_sum(x[3])};
#endif
}

/* One FP16 value, wherever it lies. */
INLINE float half_to_float(const void *p) {
    uint16_t half[VF_LANES] = {0};
    memcpy(half, p, 2);
#ifdef __F16C__
    return _cvtsh_ss(half[0]);
#else
    float lanes[VF_LANES];
    vf_store(lanes, vf_from_fp16(half));
    return lanes[0];
#endif
}

/* Pairs of FP16 values at four places: the firsts and the seconds. */
INLINE void half_pairs(const void *const places[4], f4 *firsts, f4 *seconds) {
#ifdef __F16C__
    int32_t words[4];
    UNROLL for (int i = 0; i < 4; i++) memcpy(words + i, places[i], 4);
    __m256 wide = _mm256_cvtph_ps(_mm_setr_epi32(words[0], words[1], words[2], words[3]));
    __m128 low = _mm256_castps256_ps128(wide), high = _mm256_extractf128_ps(wide, 1);
    *firsts = (f4)_mm_shuffle_ps(low, high, 0x88);
    *seconds = (f4)_mm_shuffle_ps(low, high, 0xdd);
#else
    for (int i = 0; i < 4; i++) {
        (*firsts)[i] = half_to_float(places[i]);
        (*seconds)[i] = half_to_float((const char *)places[i] + 2);
    }
#endif
}

/* e^x within 2 units in the last place: 2^n times a polynomial on |r| <= ln(2)/2 (Taylor, degree 7
 * is enough there). Below -87 the result is the smallest normal number's neighbourhood, near 0. */
INLINE vf vf_exp(vf x) {
    x = vf_min(vf_max(x, vf_set(-87.0f)), vf_set(88.0f));
    vi n = vi_round(vf_mul(x, vf_set(1.44269504f)));
    vf k = vi_to_float(n);
    vf r = vf_fma(k, vf_set(-0.693359375f), x);
    r = vf_fma(k, vf_set(2.12194440e-4f), r);
    vf y = vf_set(1.0f / 5040);
    y = vf_fma(y, r, vf_set(1.0f / 720));
    y = vf_fma(y, r, vf_set(1.0f / 120));
    y = vf_fma(y, r, vf_set(1.0f / 24));
    y = vf_fma(y, r, vf_set(1.0f / 6));
    y = vf_fma(y, r, vf_set(0.5f));
    y = vf_fma(y, r, vf_set(1.0f));
    y = vf_fma(y, r, vf_set(1.0f));
    return vf_scale_exponent(y, n);
}

/* cap * tanh(x / cap) = cap * (1 - 2 / (1 + e^(2 x / cap))); near 0 exact to cap's last place. */
INLINE vf vf_soft_cap(vf x, float cap) {
    vf e = vf_exp(vf_mul(x, vf_set(2.0f / cap)));
    vf tanh = vf_sub(vf_set(1.0f), vf_div(vf_set(2.0f), vf_add(vf_set(1.0f), e)));
    return vf_mul(vf_set(cap), tanh);
}

#endif
