/* worker_ctl.h - the control page that an executor shares with ONE worker.
 *
 * A memfd of one page, made by the executor, zeroed, passed with WK_INIT. Words are atomics; each
 * has one writer. Everything that is not a flag or a counter travels as a message (common/msg.def).
 *
 * Stop protocol: the executor raises `stop` to a new sequence number; the worker sees stop != ack
 * between two operations, lets its device drain, answers WK_TRAIN_STOPPED and sets ack = stop. A
 * stop that arrives when nothing trains is acknowledged by the next WK_TRAIN_GO's answer: no
 * wake-up is lost, because the worker compares numbers and never clears a flag. With stop_finish =
 * 1 (set before `stop`; for drop and swap) a worker that is already inside the update finishes the
 * step first, so that the state is never torn when its memory is taken; with 0 (pause) it stops at
 * any operation.
 */
#ifndef SH_EXECUTOR_POOL_WORKER_CTL_H
#define SH_EXECUTOR_POOL_WORKER_CTL_H

#include <stdatomic.h>
#include <stdint.h>

#define WORKER_CTL_BYTES 4096u
#define WORKER_IDENTITY_BYTES 640 /* of dev_identity() */
#define WORKER_EXIT_DEVLOST 2     /* exit status of a worker that lost its device context */

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
    _Atomic uint32_t ckpt_wanted; /* the same for a checkpoint, taken at the next commit */
    _Atomic uint32_t stop_finish;
    uint32_t pad0[13];
    /* written by the worker; step, loss_bits and scale_bits by the executor before each
     * WK_TRAIN_GO */
    _Atomic uint32_t stop_ack;
    _Atomic uint32_t ckpt_ack;
    _Atomic uint64_t progress;       /* grows with every operation or message: the heartbeat */
    _Atomic int64_t step;            /* committed steps of the running job */
    _Atomic uint64_t loss_bits;      /* double: loss of the last committed step, NAN = not known */
    _Atomic int64_t stop_drained_ns; /* sh_clock_ns when the last stop was through */
    _Atomic uint32_t n_prepared;     /* ranges of programs that it holds prepared */
    _Atomic uint32_t load_step;      /* enum worker_load: of the model that it compiles */
    _Atomic uint32_t load_done, load_total; /* parts of all steps; total 0: none */
    _Atomic uint64_t scale_bits; /* double: of the running job's loss; 0: none, or not known yet */
    _Atomic int64_t skipped;     /* updates of it, because gradients were not finite */
};

#endif
