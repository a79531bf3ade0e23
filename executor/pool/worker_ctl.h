/* worker_ctl.h - the control page that an executor shares with ONE worker.
 *
 * A memfd of one page, created and zeroed by the executor and passed with WK_INIT. Its words are
 * atomics; each has one writer at a time. Everything except flags and counters travels as a message
 * (common/msg.def).
 *
 * Stopping. The executor sets `stop` to a new sequence number. The worker sees stop != stop_ack
 * between two operations, lets its device drain, answers WK_TRAIN_STOPPED and sets stop_ack = stop.
 * A stop that arrives while nothing trains is acknowledged by the answer to the next WK_TRAIN_GO.
 * No wake-up is lost, because the worker compares numbers and never clears a flag. If stop_finish
 * is 1 (set before `stop`, for drop and swap), a worker inside the update finishes the step first,
 * so that the state is whole when its memory is taken. If it is 0 (pause), the worker stops at any
 * operation.
 */
#ifndef SH_EXECUTOR_POOL_WORKER_CTL_H
#define SH_EXECUTOR_POOL_WORKER_CTL_H

#include "common/mem.h"
#include "common/units.h"
#include "runtime/device/dev.h"

#include <stdatomic.h>
#include <stdint.h>

#define WORKER_CTL_BYTES 4096u
#define WORKER_IDENTITY_BYTES 640 /* size of dev_identity()'s text */
#define WORKER_EXIT_DEVLOST 2     /* exit status of a worker that lost its device context */
#define WORKER_PIECE_COUNTS_NS SH_S(10)

#define WORKER_LOAD_MAP(X) \
    X(READ, "read")        \
    X(COMPILE, "compile")  \
    X(WARM, "warm")        \
    X(IMAGE, "image")      \
    X(PROFILE, "profile")
enum worker_load {
#define X(name, text) WORKER_LOAD_##name,
    WORKER_LOAD_MAP(X)
#undef X
        WORKER_N_LOADS
};

struct worker_ctl {
    /* written by the executor */
    _Atomic uint32_t stop;        /* sequence number of the last stop wanted */
    _Atomic uint32_t ckpt_wanted; /* the same for checkpoints; one is taken at the next commit */
    _Atomic uint32_t stop_finish;
    _Atomic uint32_t give_up; /* 1: nobody waits for the present run: it ends at the next operation.
                               * 0 again before each WK_RUN */
    uint32_t pad0[12];
    /* written by the worker; before each WK_TRAIN_GO the executor writes step, loss_bits and
     * scale_bits */
    _Atomic uint32_t stop_ack;
    _Atomic uint32_t ckpt_ack;
    _Atomic uint64_t progress;  /* grows with every operation or message: the heartbeat */
    _Atomic int64_t step;       /* committed steps of the running job */
    _Atomic uint64_t loss_bits; /* double: loss of the last committed step; NAN: unknown */
    /* sh_clock_ns() when the device had drained after the last stop */
    _Atomic int64_t stop_drained_ns;
    _Atomic uint32_t n_prepared;            /* prepared ranges of programs that it holds */
    _Atomic uint32_t load_step;             /* enum worker_load: step in compiling a model */
    _Atomic uint32_t load_done, load_total; /* parts, of all steps; total 0: none */
    _Atomic uint64_t scale_bits; /* double: loss scale of the running job; 0: none, or unknown */
    _Atomic int64_t skipped;     /* its updates skipped because gradients were not finite */
    _Atomic uint32_t n_replay[DEV_N_REPLAYS]; /* dev_n_replay() */
    /* A model is loaded in pieces, and who came meanwhile is served between two. When the present
     * one began (sh_clock_ns()); 0: none, runs are served. */
    _Atomic int64_t piece_since_ns;
    /* The longest piece of late, and when it ended; worker_ctl_end_piece() */
    _Atomic int64_t long_piece_ns, long_piece_end_ns;
};

/* So long after its end a piece tells how long others may be: they are of several kinds, and those
 * of one kind come one behind the other. */
static inline int64_t worker_ctl_piece_counts_ns(int64_t piece_ns)
{
    return SH_MIN(SH_MAX(piece_ns, 0), WORKER_PIECE_COUNTS_NS / 8) * 8;
}

/* For the worker. */
static inline void worker_ctl_begin_piece(struct worker_ctl *c, int64_t now_ns)
{
    atomic_store(&c->piece_since_ns, now_ns);
}

static inline void worker_ctl_end_piece(struct worker_ctl *c, int64_t now_ns)
{
    const int64_t since_ns = atomic_load(&c->piece_since_ns);
    const int64_t longest_ns = atomic_load(&c->long_piece_ns);
    const int64_t age_ns = now_ns - atomic_load(&c->long_piece_end_ns);

    atomic_store(&c->piece_since_ns, 0);
    if (!since_ns ||
        (now_ns - since_ns < longest_ns && age_ns < worker_ctl_piece_counts_ns(longest_ns)))
        return;
    atomic_store(&c->long_piece_ns, now_ns - since_ns);
    atomic_store(&c->long_piece_end_ns, now_ns);
}

#endif
