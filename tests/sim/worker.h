/* worker.h - a worker process of the simulation: the protocol of executor/worker/ (messages WK_*,
 * control page, tickets, arena) without its mathematics.
 *
 * It computes nothing, but looks at all that it is given: a run that the weights on the device are
 * those of its model and no byte of its workspace is another tenant's, a step of training that the
 * state is whole and of the step before. Each operation takes the time that the profile says. What
 * it finds wrong is the executor's fault, and breaks the run of the simulation (sim_broken).
 *
 * What it does wrong itself is in sim_worker_faults.
 */
#ifndef SH_TESTS_SIM_WORKER_H
#define SH_TESTS_SIM_WORKER_H

#include <stdint.h>
#include <sys/types.h>

struct sim_worker_faults { /* chances */
    double die;      /* of each message, operation and piece of a load: a signal, or its own */
    double hang;     /* likewise: stands still for good, or for a while */
    double slow;     /* likewise: takes up to 30 times as long */
    double unfit;    /* at the start: cannot open its device */
    double refuse;   /* a model or job: does not fit, is too large for its tenant, is bad */
    double lie;      /* an answer: twice, or what is not so (worker_lies.c) */
    double bad_part; /* a part cannot be run; and as often: the run fails over its data */
    double unpack;   /* a packed layer: the call fails, and says nothing of what it has done */
    double nan;      /* a step: its loss is not a number */
};
extern struct sim_worker_faults sim_worker_faults;

void sim_worker_main(void *arg);       /* program "shunt-worker" */
int64_t sim_worker_hung_ns(pid_t pid); /* since when it stands still for good; 0: it does not */
/* How long the pieces of its loads took; runs between them are none. */
struct sim_pieces {
    int64_t present_ns; /* so far; 0: it is at none */
    int64_t last_ns;    /* that ended; 0: none has */
    int64_t longest_ns; /* of all, the present one too */
};
struct sim_pieces sim_worker_pieces(pid_t pid);

#endif
