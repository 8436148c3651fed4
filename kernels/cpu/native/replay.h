/* The door: a list of operations, run by a team of threads without Python. */
#ifndef PS_REPLAY_H
#define PS_REPLAY_H

#include <time.h>

#include "attention.h"
#include "linear_dense.h"
#include "linear_grouped.h"
#include "small_ops.h"
#include "top_k.h"

#if defined(_WIN32)
#define PS_EXPORT __declspec(dllexport)
#else
#define PS_EXPORT __attribute__((visibility("default")))
#endif

static int64_t now_ns(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void run_op(const ps_op *op, const ps_member *me) {
    switch (op->kind) {
    case PS_EMBED: embed((const ps_embed *)op, me); break;
    case PS_RMS_NORM: rms_norm((const ps_rms_norm *)op, me); break;
    case PS_LINEAR:
        if (((const ps_linear *)op)->weight.format >= PS_INT8)
            linear_grouped((const ps_linear *)op, me);
        else linear_dense((const ps_linear *)op, me);
        break;
    case PS_ROPE_STORE: rope_store((const ps_rope_store *)op, me); break;
    case PS_ATTENTION_DECODE: attention_decode((const ps_attention_decode *)op, me); break;
    case PS_SILU_MUL: silu_mul((const ps_silu_mul *)op, me); break;
    case PS_EXPAND: expand((const ps_expand *)op, me); break;
    case PS_TOP_K: top_k((const ps_top_k *)op, me); break;
    }
}

/* Walk the list; `*cancel` is polled between operations by one thread for all. It writes the index
 * of the last operation, so that a member still leaving an earlier barrier is not misled. */
static void walk(const ps_op *const *ops, int64_t count, const volatile int32_t *cancel,
                 volatile int64_t *last, int64_t *stage_ns, const ps_member *me) {
    int64_t before = me->id == 0 ? now_ns() : 0;
    for (int64_t i = 0; i < count; i++) {
        run_op(ops[i], me);
        if (me->id == 0 && *cancel && i + 1 < count) *last = i;
        ps_barrier(me);
        if (me->id == 0) {
            int64_t after = now_ns();
            stage_ns[ops[i]->stage] += after - before;
            before = after;
        }
        if (*last == i) break;
    }
}

/* Run `count` operations with `threads` threads. Adds the time of each stage to `stage_ns`.
 * Returns 1 when it ran to the end, 0 when it stopped because `*cancel` was set. */
PS_EXPORT int32_t ps_run(const ps_op *const *ops, int64_t count, int32_t threads,
                         const int32_t *cancel, int64_t *stage_ns) {
    volatile int64_t last = -1;
    ps_team team = {1, 0, 0};
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
    {
#pragma omp single
        team.size = omp_get_num_threads();
        ps_member me = {&team, omp_get_thread_num(), team.size};
        walk(ops, count, cancel, &last, stage_ns, &me);
    }
#else
    (void)threads;
    ps_member me = {&team, 0, 1};
    walk(ops, count, cancel, &last, stage_ns, &me);
#endif
    return last < 0;
}

/* The instruction level this library was compiled for. */
PS_EXPORT const char *ps_level(void) { return PS_LEVEL; }

/* Tokens of one attention item; the caller sizes the scratch by it. */
PS_EXPORT int64_t ps_attention_span(void) { return SPAN; }

#endif
