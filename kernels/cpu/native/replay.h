/* The door: a list of operations, run by a team of threads without Python. */
#ifndef PS_REPLAY_H
#define PS_REPLAY_H

#include <time.h>

#include "attention.h"
#include "attention_prefill.h"
#include "linear_dense.h"
#include "linear_grouped.h"
#include "small_ops.h"
#include "team.h"
#include "top_k.h"

#if defined(_WIN32)
#define PS_EXPORT __declspec(dllexport)
#else
#define PS_EXPORT __attribute__((visibility("default")))
#endif

#define PHASES 2              /* an operation's second step needs all of its first */
#define WORTH_SHARING (1 << 14) /* bytes touched; less is done sooner than handed out */

INLINE int is_grouped(const ps_op *op) { return ((const ps_linear *)op)->weight.format >= PS_INT8; }

/* A dense weight times so many rows that it pays to widen it into a tile first. */
INLINE int is_many(const ps_op *op) { return !is_grouped(op) && ((const ps_linear *)op)->rows > FEW_ROWS; }

/* Items of a phase, 0 where there is no such phase, and roughly how many bytes one touches. */
static int64_t items_of(const ps_op *op, int phase, int64_t *bytes) {
    switch (op->kind) {
    case PS_EMBED: {
        const ps_embed *e = (const ps_embed *)op;
        *bytes = e->weight.num_in * 4;
        return phase == 0 ? e->rows : 0;
    }
    case PS_RMS_NORM: {
        const ps_rms_norm *n = (const ps_rms_norm *)op;
        *bytes = n->hidden * 8;
        return phase == 0 ? n->rows * n->parts : 0;
    }
    case PS_LINEAR: {
        const ps_linear *l = (const ps_linear *)op;
        if (is_many(op)) {
            *bytes = l->weight.num_in * 2 * GEMM_COLUMNS;
            return phase == 0 ? (l->weight.num_out + GEMM_COLUMNS - 1) / GEMM_COLUMNS : 0;
        }
        if (!is_grouped(op)) {
            *bytes = l->weight.num_in * 2 * DENSE_OUTPUTS;
            return phase == 0 ? (l->weight.num_out + DENSE_OUTPUTS - 1) / DENSE_OUTPUTS : 0;
        }
        *bytes = phase == 0 ? PS_BLOCK * 4 : tile_bytes(&l->weight);
        return phase == 0 ? l->rows * l->weight.padded_in / PS_BLOCK : tiles_of(&l->weight);
    }
    case PS_ROPE_STORE: {
        const ps_rope_store *r = (const ps_rope_store *)op;
        *bytes = r->head_dim * 8;
        if (phase == 0) return r->rows * (r->num_heads + r->num_kv_heads);
        return r->k_cache.format == PS_INT4_CHANNEL ? r->rows * r->num_kv_heads : 0;
    }
    case PS_ATTENTION_DECODE: {
        const ps_attention_decode *a = (const ps_attention_decode *)op;
        *bytes = a->head_dim * (phase == 0 ? SHORTEST_SPAN * 4 * a->num_kv_heads : 8);
        return phase == 0 ? attention_items(a) : a->rows * a->num_heads;
    }
    case PS_ATTENTION_PREFILL: {
        const ps_attention_prefill *a = (const ps_attention_prefill *)op;
        *bytes = a->head_dim * a->context_len * 4;
        return phase == 0 ? query_blocks(a) * a->num_kv_heads : 0;
    }
    case PS_GATE_MUL: {
        const ps_gate_mul *g = (const ps_gate_mul *)op;
        *bytes = VF_LANES * 12;
        return phase == 0 ? g->rows * gate_vectors(g) : 0;
    }
    case PS_SOFT_CAP: {
        *bytes = CAP_CHUNK * 4;
        return phase == 0 ? cap_chunks((const ps_soft_cap *)op) : 0;
    }
    case PS_TOP_K: {
        const ps_top_k *t = (const ps_top_k *)op;
        *bytes = phase == 0 ? t->vocab * 4 / SLICES : t->k * 12 + groups_of(t->vocab) * 4;
        return phase == 0 ? t->rows * SLICES : t->rows;
    }
    case PS_EXPAND: {
        const ps_expand *x = (const ps_expand *)op;
        *bytes = tile_bytes(&x->weight) * 4;
        return phase == 0 ? tiles_of(&x->weight) : 0;
    }
    case PS_GATHER_COLUMNS: {
        const ps_gather_columns *g = (const ps_gather_columns *)op;
        *bytes = g->width * 12;
        return phase == 0 ? g->rows : 0;
    }
    }
    return 0;
}

static void run_items(const ps_op *op, int phase, int64_t begin, int64_t end) {
    switch (op->kind) {
    case PS_EMBED: embed((const ps_embed *)op, begin, end); break;
    case PS_RMS_NORM: rms_norm((const ps_rms_norm *)op, begin, end); break;
    case PS_LINEAR:
        if (is_many(op)) linear_many((const ps_linear *)op, begin, end);
        else if (!is_grouped(op)) linear_dense((const ps_linear *)op, begin, end);
        else if (phase == 0) quantize_rows((const ps_linear *)op, begin, end);
        else linear_grouped((const ps_linear *)op, begin, end);
        break;
    case PS_ROPE_STORE:
        if (phase == 0) rope_store((const ps_rope_store *)op, begin, end);
        else close_blocks((const ps_rope_store *)op, begin, end);
        break;
    case PS_ATTENTION_DECODE:
        if (phase == 0) attention_spans((const ps_attention_decode *)op, begin, end);
        else attention_merge((const ps_attention_decode *)op, begin, end);
        break;
    case PS_ATTENTION_PREFILL:
        attention_prefill((const ps_attention_prefill *)op, begin, end);
        break;
    case PS_GATE_MUL: gate_mul((const ps_gate_mul *)op, begin, end); break;
    case PS_SOFT_CAP: soft_cap((const ps_soft_cap *)op, begin, end); break;
    case PS_TOP_K:
        if (phase == 0) top_k_slices((const ps_top_k *)op, begin, end);
        else top_k_merge((const ps_top_k *)op, begin, end);
        break;
    case PS_EXPAND: expand((const ps_expand *)op, begin, end); break;
    case PS_GATHER_COLUMNS: gather_columns((const ps_gather_columns *)op, begin, end); break;
    }
}

static int64_t now_ns(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Where the team is in the list. Only the thread that finished a step's last chunk touches it. */
typedef struct {
    ps_team team;
    const ps_op *const *ops;
    int64_t count;
    int64_t at;
    int phase;
    const volatile int32_t *cancel;
    int64_t *stage_ns;
    int64_t since_ns;
    int stopped;
} ps_run_state;

/* Do what follows the present step while it is too little to share, then publish the next step, or
 * the end. */
static void advance(ps_run_state *run) {
    for (;;) {
        if (++run->phase == PHASES) {
            int64_t now = now_ns();
            run->stage_ns[run->ops[run->at]->stage] += now - run->since_ns;
            run->since_ns = now;
            run->phase = 0;
            run->at++;
            run->stopped = run->at < run->count && *run->cancel;
            if (run->at == run->count || run->stopped) {
                ps_end(&run->team);
                return;
            }
        }
        int64_t bytes = 0, items = items_of(run->ops[run->at], run->phase, &bytes);
        if (items > 1 && items * bytes > WORTH_SHARING) {
            ps_publish(&run->team, items);
            return;
        }
        run_items(run->ops[run->at], run->phase, 0, items);
    }
}

static void work(ps_run_state *run) {
    int64_t begin, end;
    while (ps_claim(&run->team, &begin, &end)) {
        if (begin < end) run_items(run->ops[run->at], run->phase, begin, end);
        if (ps_finish(&run->team)) advance(run);
    }
}

/* Run `count` operations with at most `threads` threads. Adds the time of each stage to `stage_ns`.
 * Returns 1 when it ran to the end, 0 when it stopped because `*cancel` was set. */
PS_EXPORT int32_t ps_run(const ps_op *const *ops, int64_t count, int32_t threads,
                         const int32_t *cancel, int64_t *stage_ns) {
    ps_run_state run = {.ops = ops, .count = count, .phase = -1, .cancel = cancel};
    run.stage_ns = stage_ns;
    run.since_ns = now_ns();
    run.team.threads = 1;
#ifdef _OPENMP
    run.team.threads = threads;
    advance(&run);
    if (threads > 1 && !run.team.ended) { /* something is worth sharing */
#pragma omp parallel num_threads(threads)
        work(&run);
        return !run.stopped;
    }
#else
    (void)threads;
    advance(&run);
#endif
    work(&run);
    return !run.stopped;
}

/* The instruction level this library was compiled for. */
PS_EXPORT const char *ps_level(void) { return PS_LEVEL; }

/* What the caller sizes scratch by: spans of a context, slices and groups of a row of logits. */
PS_EXPORT int64_t ps_attention_spans(int64_t context_len) { return max_spans_of(context_len); }
PS_EXPORT int64_t ps_top_k_slices(void) { return SLICES; }
PS_EXPORT int64_t ps_top_k_groups(int64_t vocab) { return groups_of(vocab); }

#endif
