/* Threads that work through one list of steps together, without a barrier.
 *
 * A step of some size is cut into chunks, large ones first. Whoever is free claims the next one, and whoever
 * finishes the last chunk of a step publishes the next step. So a thread that the system has put
 * aside (a window wants its core) holds up the others only for the chunk it is in, and one thread
 * alone makes progress too. Waiting is polling for a short while, then sleeping: a core that falls
 * idle is what lets the system move a put-aside thread there.
 *
 * On Linux the threads are those of the OpenMP runtime that torch has loaded already, so that
 * there is one pool. Without OpenMP there is one thread.
 */
#ifndef PS_TEAM_H
#define PS_TEAM_H

#include <stdint.h>

#include "simd.h"

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define PS_LEVELS 4   /* chunk sizes halve that many times */
#define PS_POLLS 2000 /* before sleeping; some ten microseconds */

typedef struct {
    uint64_t ticket; /* step << 32 | next chunk */
    int32_t done;    /* chunks finished in this step */
    int32_t sleepers;
    int32_t round; /* changes with every step; what sleepers wait on */
    int32_t threads;
    int64_t items; /* of this step: written before the ticket that announces it */
    int32_t ended;
} ps_team;

INLINE void ps_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

INLINE int32_t chunks_of(const ps_team *team) { return team->threads * PS_LEVELS; }

/* Where chunk `c` of `items` begins: half of them go in the first `threads` chunks, half of the rest
 * in the next, and so on. */
INLINE int64_t chunk_begin(const ps_team *team, int64_t items, int32_t c) {
    if (c >= chunks_of(team)) return items;
    int64_t threads = team->threads, level = c / threads, within = c % threads;
    int64_t parts = threads << (level + 1);
    int64_t before = ((1 << level) - 1) * 2 * threads;
    return items * (before + within * (level == PS_LEVELS - 1 ? 2 : 1)) / parts;
}

/* Announce a step of `items` items. */
INLINE void ps_publish(ps_team *team, int64_t items) {
    __atomic_store_n(&team->items, items, __ATOMIC_RELAXED);
    __atomic_store_n(&team->done, 0, __ATOMIC_RELAXED);
    uint64_t step = (team->ticket >> 32) + 1;
    __atomic_store_n(&team->ticket, step << 32, __ATOMIC_SEQ_CST);
    __atomic_store_n(&team->round, (int32_t)step, __ATOMIC_SEQ_CST);
#if defined(__linux__)
    if (__atomic_load_n(&team->sleepers, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &team->round, FUTEX_WAKE_PRIVATE, INT32_MAX, 0, 0, 0);
#endif
}

/* Nothing more comes. */
INLINE void ps_end(ps_team *team) {
    __atomic_store_n(&team->ended, 1, __ATOMIC_SEQ_CST);
    ps_publish(team, 0);
}

/* Wait until the step changes from the one in `ticket`. */
INLINE void ps_wait(ps_team *team, uint64_t ticket) {
    for (int polls = 0; polls < PS_POLLS; polls++) {
        if (__atomic_load_n(&team->ticket, __ATOMIC_ACQUIRE) >> 32 != ticket >> 32) return;
        ps_pause();
    }
#if defined(__linux__)
    int32_t round = (int32_t)(ticket >> 32);
    __atomic_add_fetch(&team->sleepers, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&team->round, __ATOMIC_SEQ_CST) == round)
        syscall(SYS_futex, &team->round, FUTEX_WAIT_PRIVATE, round, 0, 0, 0);
    __atomic_sub_fetch(&team->sleepers, 1, __ATOMIC_SEQ_CST);
#endif
}

/* The next chunk [begin, end) of the present step; 0 when all steps are over. */
INLINE int ps_claim(ps_team *team, int64_t *begin, int64_t *end) {
    for (;;) {
        uint64_t ticket = __atomic_load_n(&team->ticket, __ATOMIC_ACQUIRE);
        int32_t chunk = (int32_t)ticket;
        if (__atomic_load_n(&team->ended, __ATOMIC_ACQUIRE)) return 0;
        if (chunk >= chunks_of(team)) {
            ps_wait(team, ticket);
            continue;
        }
        int64_t items = __atomic_load_n(&team->items, __ATOMIC_RELAXED);
        *begin = chunk_begin(team, items, chunk);
        *end = chunk_begin(team, items, chunk + 1);
        /* Succeeds only if the step is still the one these bounds were read of. */
        if (__atomic_compare_exchange_n(&team->ticket, &ticket, ticket + 1, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return 1;
    }
}

/* Whether the chunk just done was the last of its step: the caller then publishes the next. */
INLINE int ps_finish(ps_team *team) {
    return __atomic_add_fetch(&team->done, 1, __ATOMIC_ACQ_REL) == chunks_of(team);
}

#endif
