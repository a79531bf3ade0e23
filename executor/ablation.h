/* ablation.h - a switch without one of the things that make it fast, to measure what each is worth
 * (--debug-ablation; bench/gpu/ablations.py). What a run's time includes then:
 *
 *   none          nothing is left out
 *   per-layer, fixed-2mb, one-group, optimum   --switch-mode; one-group: no pipelining
 *   no-daemon     the worker allocates device memory for the run, cleared, and copies the weights
 *                 there itself: from the same page-locked image, in the same groups, as far ahead
 *                 of computing. It frees the memory when the result is out
 *   ipc           the arena's descriptors come with the run; the worker maps it anew, and unmaps
 *                 the mapping it had
 *   pageable      images are not page-locked. Such copies hold the executor until they are done, so
 *                 they overlap neither with computing nor with the end of training
 *   one-process   the worker that trains cleans up first: it stops, the state goes to host memory,
 *                 the training's memory and program are freed. Then it runs the request, for which
 *                 it has the program
 *   two-processes a process is there that has loaded its libraries. It makes its device context,
 *                 compiles the model for the largest batch (with what is known of its kernels),
 *                 runs, and ends; another takes its place, off the path
 *   new-process   the same with a process that starts for the run
 *
 * In the last two, training stops before the process begins, and the copies of the weights travel
 * meanwhile. Workers that were there before serve one run each: warm up with as many runs as there
 * are workers. Load one model, and run it with its largest batch.
 */
#ifndef SH_EXECUTOR_ABLATION_H
#define SH_EXECUTOR_ABLATION_H

#include "executor/memory/transmit.h"

#define ABLATION_MAX_STEPS 16

struct exec;
struct worker;

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

struct ablations { /* of one executor; all zero: nothing is left out */
    enum ablation now;
    struct {
        enum ablation what;
        enum tx_mode mode;
    } steps[ABLATION_MAX_STEPS];
    size_t n_steps, at;
    bool must_step;         /* SIGHUP came: at the next moment without a run */
    struct worker *cleaned; /* one-process: runs go to it; NULL: to any */
};

/* list: names of the above with commas; the first one counts until ablation_step(). Sets the hooks
 * (hooks.h) unless it is "none" alone. */
int ablation_parse(struct exec *x, const char *list, struct sh_err *err);
void ablation_step(struct exec *x); /* SIGHUP: the next of the list, after the last the first */

#endif
