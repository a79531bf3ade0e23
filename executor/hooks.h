/* hooks.h - what the laboratory (lab/) changes in an executor: it leaves out something that makes a
 * switch fast, or makes training stop in another way than the memory asks for. A release has no
 * table, and its answer to each question is the one beside the question.
 */
#ifndef SH_EXECUTOR_HOOKS_H
#define SH_EXECUTOR_HOOKS_H

#include "executor/exec.h"

struct model;
struct msg_group;
struct msg_wk_init;
struct msg_wk_run;
struct worker;

struct hook_send {        /* what goes with a run */
    int fds[DEV_MAX_FDS]; /* BORROWED */
    size_t n_fds;
    struct msg_group *groups; /* OWNED, free(); NULL: as they are */
};

struct exec_hooks {                           /* all are set */
    void (*begin)(void *arg, struct exec *x); /* the device is open */
    void (*hang_up)(void *arg);               /* SIGHUP came */
    /* workers */
    bool (*may_run)(void *arg, const struct worker *w);
    bool (*is_held)(void *arg, const struct worker *w); /* it waits for a second WK_INIT */
    void (*fill_init)(void *arg, const struct worker *w, struct msg_wk_init *m);
    int64_t (*restart_ns)(void *arg, struct worker *w,
                          int64_t wait_ns); /* < 0: until a run comes */
    /* models */
    bool (*locks_images)(void *arg);
    bool (*maps_images)(void *arg);
    bool (*has_memory)(void *arg); /* false: a run has memory of its own, elsewhere */
    bool (*drops_idle)(void *arg); /* a model leaves the device with its last pin */
    /* runs */
    bool (*sends_inputs)(void *arg);
    void (*before_run)(void *arg);
    /* No worker is free for a run of the model, but one will be once it is the current one. */
    bool (*frees_worker)(void *arg, const struct model *m);
    void (*finds_no_worker)(void *arg); /* the current run */
    bool (*wants_swap)(void *arg);      /* of training, before anything else; asked once */
    void (*has_swapped)(void *arg);
    bool (*stops_early)(void *arg);         /* training, before it is known how far */
    enum stop_way (*way_beside)(void *arg); /* for a run that fits beside all of training */
    void (*fill_run)(void *arg, const struct model *m, struct msg_wk_run *run,
                     struct hook_send *out);
    void (*on_run_done)(void *arg, struct worker *w);
    void *arg;
};

/* What is asked where no table is, and else of the table. */
#define HOOK_ASK(h, name, otherwise, ...) \
    ((h) ? (h)->name((h)->arg __VA_OPT__(, ) __VA_ARGS__) : (otherwise))
#define HOOK_TELL(h, name, ...)                             \
    do {                                                    \
        if (h)                                              \
            (h)->name((h)->arg __VA_OPT__(, ) __VA_ARGS__); \
    } while (0)

#endif
