/* A team of threads that walks one list of operations together.
 *
 * On Linux the threads are those of the OpenMP runtime that torch has loaded already, so that
 * there is one pool. Without OpenMP the team has one member and every barrier is empty.
 */
#ifndef PS_TEAM_H
#define PS_TEAM_H

#include <stdint.h>

#ifdef _OPENMP
#include <omp.h>
#include <sched.h>
#endif

typedef struct {
    int size;
    volatile int arrived;
    volatile int round;
} ps_team;

typedef struct {
    ps_team *team;
    int id;   /* 0 .. size - 1 */
    int size;
} ps_member;

/* Polls before giving the processor away: another program may hold the one a member needs. */
#define PS_SPINS 4000

static inline void ps_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Wait until all members are here. Everything written before is visible to all after. */
static inline void ps_barrier(const ps_member *me) {
    if (me->size == 1) return;
#ifdef _OPENMP
    ps_team *team = me->team;
    int round = __atomic_load_n(&team->round, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&team->arrived, 1, __ATOMIC_ACQ_REL) == team->size) {
        team->arrived = 0;
        __atomic_store_n(&team->round, round + 1, __ATOMIC_RELEASE);
        return;
    }
    for (int spins = 0; __atomic_load_n(&team->round, __ATOMIC_ACQUIRE) == round; spins++) {
        if (spins < PS_SPINS) ps_pause();
        else sched_yield();
    }
#endif
}

/* A member's share [begin, end) of `count` items: contiguous, so that it always reads the same
 * part of a weight. */
static inline void ps_share(const ps_member *me, int64_t count, int64_t *begin, int64_t *end) {
    *begin = count * me->id / me->size;
    *end = count * (me->id + 1) / me->size;
}

#endif
