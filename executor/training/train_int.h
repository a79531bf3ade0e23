/* train_int.h - shared by train.c (what is wanted, and the steps towards it) and train_events.c
 * (the messages of workers and of the scheduler). */
#ifndef SH_EXECUTOR_TRAINING_TRAIN_INT_H
#define SH_EXECUTOR_TRAINING_TRAIN_INT_H

#include "executor/training/job.h"

struct train {
    struct train_env env;
    struct job *job;
    uint32_t state_ticket; /* last ticket value of TX_SLOT_STATE */
    struct sh_timer *tick;
};

/* train.c */
void train__count_redone(struct job *j, int64_t n);
/* Gives up the workspace; the state of the last commit stays. to: the next state of its worker.
 * False: nothing to do. */
bool train__drop_workspace(struct job *j, enum worker_state to);
void train__ask_checkpoint(struct job *j);
/* Ends the job if it stands at its last step and all its evaluations are done. */
void train__end_if_done(struct job *j);

/* train_events.c */
void train__fail(struct job *j, const struct sh_err *why);
void train__end_job(struct train *t, struct job *j, enum msg_job_phase phase);

#endif
