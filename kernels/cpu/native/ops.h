/* The operations and their arguments. kernels/cpu/structs.py mirrors every struct here.
 *
 * T tokens or rows, Hq query heads, Hk key/value heads, D head dimension. Activations are FP32 and
 * row-major; lengths, positions and tables are int64 as torch has them. A struct is filled once and
 * run many times: what changes between runs lies behind its pointers.
 */
#ifndef PS_OPS_H
#define PS_OPS_H

#include <stdint.h>

typedef enum {
    PS_EMBED,
    PS_RMS_NORM,
    PS_LINEAR,
    PS_ROPE_STORE,
    PS_ATTENTION_DECODE,
    PS_GATE_MUL,
    PS_TOP_K,
    PS_EXPAND,
    PS_ATTENTION_PREFILL,
    PS_SOFT_CAP,
    PS_GATHER_COLUMNS,
} ps_kind;

typedef enum { PS_FP32, PS_BF16, PS_FP16, PS_INT8, PS_INT4, PS_INT4_CHANNEL } ps_format;

/* Every operation begins with this. `stage` is where its time is booked. */
typedef struct {
    int32_t kind;
    int32_t stage;
} ps_op;

/* [num_out, num_in]. Dense formats are row-major. INT8 and INT4 lie in tiles of PS_TILE outputs,
 * see kernels/weights.py: TiledWeight. */
typedef struct {
    int32_t format;
    int32_t group_size;
    int32_t has_minimum;
    int32_t padded_in; /* num_in rounded up to PS_BLOCK */
    int64_t num_out;
    int64_t num_in;
    const void *data;
} ps_weight;

#define PS_TILE 16  /* outputs that lie interleaved */
#define MAX_HEAD_DIM 256
#define PS_BLOCK 32 /* inputs that share a scale of the quantized activations */

/* Keys or values of a layer's cache: see kernels/kv_entries.py. */
typedef struct {
    int32_t format;
    int32_t group_size; /* dims that share a scale, where entries are quantized by token */
    void *data;
    uint16_t *tails; /* keys by channel: BF16 [tails, block_size, Hk, D] */
    uint16_t *fresh; /* and [T, Hk, D] */
} ps_kv;

/* out [T, num_in] = scale * rows `ids` of the weight. */
typedef struct {
    ps_op op;
    int64_t rows;
    ps_weight weight;
    const int64_t *ids;
    float scale;
    float *out;
} ps_embed;

/* residual += delta, unless delta is null; out = RMSNorm(residual) * weight, unless out is null.
 * A row of the residual is `parts` stretches of `hidden` floats, normed apart; rows lie `stride`
 * floats from each other. Those of out, and of delta, which goes with one part only, are dense. */
typedef struct {
    ps_op op;
    int64_t rows;
    int64_t parts;
    int64_t hidden;
    int64_t stride;
    float eps;
    const float *delta;
    float *residual;
    const float *weight;
    float *out;
} ps_rms_norm;

/* out [T, num_out] = x [T, num_in] weight^T + bias. `codes`, `scales` and `sums` are scratch for
 * quantized x: T * padded_in codes of up to 2 bytes, [T, padded_in / PS_BLOCK] twice. */
typedef struct {
    ps_op op;
    int64_t rows;
    ps_weight weight;
    const float *x;
    int64_t x_stride;
    const float *bias;
    float *out;
    int64_t out_stride;
    uint8_t *codes;
    float *scales;
    float *sums;
} ps_linear;

/* Rotate q and k by their positions; q_out [T, Hq, D]; k and v go to their slots. Strides in
 * floats between tokens; heads of a token are contiguous. `tails`, for keys by channel: [T]. */
typedef struct {
    ps_op op;
    int64_t rows;
    int32_t num_heads;
    int32_t num_kv_heads;
    int32_t head_dim;
    int32_t half; /* pairs that rotate */
    const float *q;
    const float *k;
    const float *v;
    int64_t q_stride;
    int64_t k_stride;
    int64_t v_stride;
    const int64_t *positions;
    const float *cos; /* [positions, half] */
    const float *sin;
    float *q_out;
    ps_kv k_cache;
    ps_kv v_cache;
    int64_t block_size;
    const int64_t *slot_mapping;
    const int64_t *tails;
} ps_rope_store;

/* One query a row over its paged blocks; out [T, Hq, D]. `partial` is scratch, see attention.h. */
typedef struct {
    ps_op op;
    int64_t rows;
    int32_t num_heads;
    int32_t num_kv_heads;
    int32_t head_dim;
    int32_t block_size;
    int64_t table_width;
    int64_t window; /* keys a query sees, its own included; 0: all */
    float scale;
    float softcap; /* scores become c * tanh(score / c); 0: not */
    const float *q;
    ps_kv k_cache;
    ps_kv v_cache;
    const int64_t *block_tables; /* [T, table_width] */
    const int64_t *context_lens; /* [T] */
    const int64_t *tails;        /* [T], for keys by channel */
    float *partial;
    float *out;
} ps_attention_decode;

/* Causal attention of one sequence's last `num_queries` tokens over its paged blocks; q and out
 * [num_queries, Hq, D], q with `q_stride` floats between tokens. D is a multiple of 16. */
typedef struct {
    ps_op op;
    int64_t num_queries;
    int64_t context_len;
    int64_t q_stride;
    int64_t window; /* as in decode */
    int32_t num_heads;
    int32_t num_kv_heads;
    int32_t head_dim;
    int32_t block_size;
    float scale;
    float softcap;
    const float *q;
    ps_kv k_cache; /* `fresh` begins with the keys of the first query */
    ps_kv v_cache;
    const int64_t *block_table;
    float *out;
} ps_attention_prefill;

typedef enum { PS_SILU, PS_GELU_TANH } ps_activation;

/* out [T, width] = act(x[:, :width]) * x[:, width:]. */
typedef struct {
    ps_op op;
    int64_t rows;
    int64_t width;
    int32_t activation;
    const float *x;
    float *out;
} ps_gate_mul;

/* x [T, width] = cap * tanh(x / cap), in place. */
typedef struct {
    ps_op op;
    int64_t rows;
    int64_t width;
    float cap;
    float *x;
} ps_soft_cap;

/* The k largest of each row, in order, and log(sum(exp((logits - largest) * inverse_temperature))).
 * Scratch: `largest` [T, groups of GROUP logits], `partial` [T, SLICES, 2]. */
typedef struct {
    ps_op op;
    int64_t rows;
    int64_t vocab;
    int64_t k;
    const float *logits;
    const float *inverse_temperature; /* [T] */
    float *values;                    /* [T, k] */
    int64_t *ids;                     /* [T, k] */
    float *log_sum;                   /* [T] */
    float *largest;
    float *partial;
} ps_top_k;

/* out [num_in, num_out] = a tiled weight as FP32, or as BF16, transposed: what a dense product of
 * many rows takes. */
typedef struct {
    ps_op op;
    ps_weight weight;
    int32_t to_bf16;
    void *out;
} ps_expand;

/* out [T, width] = x[:, order]; x with `x_stride` floats between rows. */
typedef struct {
    ps_op op;
    int64_t rows;
    int64_t width;
    const float *x;
    int64_t x_stride;
    const int32_t *order; /* [width] */
    float *out;
} ps_gather_columns;

#endif
