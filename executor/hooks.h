/* hooks.h - where a measurement leaves out something that makes a switch fast (ablation.h). There
 * is one table, and in an executor that measures nothing it is not there.
 */
#ifndef SH_EXECUTOR_HOOKS_H
#define SH_EXECUTOR_HOOKS_H

#include "executor/exec.h"

struct model;
struct msg_wk_run;
struct run;
struct worker;

struct hook_send {        /* what goes with a run */
    int fds[DEV_MAX_FDS]; /* BORROWED */
    size_t n_fds;
    struct msg_group *groups; /* OWNED, free(); NULL: as they are */
};

struct exec_hooks { /* all are set */
    /* workers */
    bool (*may_run)(const struct worker *w);
    int64_t (*restart_ns)(struct worker *w, int64_t wait_ns); /* < 0: until a run comes */
    /* models */
    bool (*locks_images)(const struct exec *x);
    bool (*maps_images)(const struct exec *x);
    bool (*has_memory)(const struct exec *x); /* false: a run has memory of its own, elsewhere */
    /* runs */
    bool (*sends_inputs)(const struct exec *x);
    void (*before_run)(struct exec *x);
    /* No worker is free for a run of the model, but one will be once it is the current one. */
    bool (*frees_worker)(const struct exec *x, const struct model *m);
    void (*finds_no_worker)(struct exec *x); /* the current run */
    bool (*wants_swap)(struct exec *x);      /* of training, before anything else; asked once */
    void (*has_swapped)(struct exec *x);
    void (*fill_run)(const struct run *r, struct msg_wk_run *m, struct hook_send *out);
    void (*on_run_done)(struct worker *w);
};

/* What is asked where no table is, and else of the table. */
#define HOOK_ASK(x, name, otherwise, ...) ((x)->hooks ? (x)->hooks->name(__VA_ARGS__) : (otherwise))
#define HOOK_TELL(x, name, ...)            \
    do {                                   \
        if ((x)->hooks)                    \
            (x)->hooks->name(__VA_ARGS__); \
    } while (0)

#endif
