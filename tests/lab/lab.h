/* lab.h - the laboratory: executors and workers for measurements and tests. No release contains it
 * (README.md).
 *
 * What a run's time includes with --debug-ablation:
 *
 *   none          nothing is left out
 *   per-layer, fixed-2mb, one-group, optimum   --debug-switch-mode; one-group: no pipelining
 *   no-daemon     the worker allocates and clears device memory for the run and copies the weights
 *                 itself: from the same page-locked image, in the same groups, as far ahead of
 *                 computing. It frees the memory when the result is out
 *   ipc           the arena's descriptors come with the run; the worker maps the arena again and
 *                 removes the old mapping
 *   pageable      images are not page-locked. The executor blocks until such a copy is done, so
 *                 copies overlap neither with computing nor with the end of training
 *   one-process   the worker that trains cleans up first: it stops, its state goes to host memory,
 *                 its training memory and program are freed. Then it runs the request, for which it
 *                 has the program
 *   two-processes a process has its libraries loaded. It creates its device context, compiles the
 *                 model for the largest batch (using measured kernels), runs, and ends; another
 *                 process takes its place, off the path
 *   new-process   the same, but the process starts for the run
 *
 * In the last two, training stops before the process begins, and the weights are copied meanwhile.
 * Workers from before serve one run each: warm up with as many runs as there are workers. Load one
 * model, and run it with its largest batch.
 *
 * Images are packed and tables read in place, as in a release, if a list has only none, ipc and
 * modes. Any other name has all of its list take images as they are: compare it with "none" there.
 */
#ifndef SH_EXECUTOR_LAB_LAB_H
#define SH_EXECUTOR_LAB_LAB_H

#include "common/conf.h"
#include "executor/exec.h"
#include "executor/hooks.h"
#include "tests/lab/group.h"

#define LAB_MAX_STEPS 16
#define LAB_MAX_WORKERS 64

struct lab_wishes { /* the options; NULL: as in a release */
    const char *switch_mode, *stop_way, *ablation;
    bool is_cold;    /* evict a model when its run ends */
    int64_t hold_ms; /* training is held off for so long at a time; 0: by what images cost */
};

struct lab_conf {
    struct exec_conf exec; /* the first member: EXEC_OPTIONS fill it */
    struct lab_wishes lab;
};
extern const struct sh_conf_opt LAB_OPTIONS[]; /* of struct lab_conf */
extern const size_t LAB_N_OPTIONS;

enum ablation {
    ABLATION_NONE,
    ABLATION_NO_DAEMON,
    ABLATION_IPC,
    ABLATION_PAGEABLE,
    ABLATION_ONE_PROCESS,
    ABLATION_TWO_PROCESSES,
    ABLATION_NEW_PROCESS,
    ABLATION_N
};

struct lab { /* of one executor */
    struct exec *x;
    struct exec_hooks hooks;
    bool is_cold;
    enum stop_way way; /* STOP_N_WAYS: chosen by the memory needed */
    bool takes_turns;  /* uses each way in turn instead */
    uint32_t n_stops;
    int64_t hold_ns;

    enum ablation now;
    struct {
        enum ablation what;
        enum lab_mode mode;
    } steps[LAB_MAX_STEPS];
    size_t n_steps, at;
    bool must_step;         /* SIGHUP has arrived: step when no run is current */
    struct worker *cleaned; /* one-process: runs go to it; NULL: to any */
    struct {                /* indexed by worker */
        bool is_for_one;    /* this process and its successor end after one run */
        bool is_held;       /* it starts with a run; its process may exist before */
    } workers[LAB_MAX_WORKERS];
};

/* *hooks: BORROWED from l, which must not move; NULL if no option is set. Fails: SH_E_INVALID,
 * SH_E_TOOBIG, naming the option. */
int lab_init(struct lab *l, const struct lab_wishes *w, const struct exec_hooks **hooks,
             struct sh_err *err);

/* ablation.c. list: names from above, separated by commas; hang_up() moves on to the next. */
int ablation_parse(struct lab *l, const char *list, enum lab_mode mode, struct sh_err *err);
void ablation_fill(struct exec_hooks *h); /* fills in the ablations' hooks */

#endif
