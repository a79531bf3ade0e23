/* program.h - the process shunt-executor: options, signals, metrics, one executor. main.c runs the
 * release, lab/main.c adds the laboratory's options.
 */
#ifndef SH_EXECUTOR_PROGRAM_H
#define SH_EXECUTOR_PROGRAM_H

#include "executor/exec.h"

struct exec_program {
    const struct sh_conf_table *options;
    struct exec_conf *conf; /* filled by them; may be the first member of a larger struct */
    /* Called when the options have been read; NULL: no hooks. *hooks: BORROWED for the life of the
     * process. */
    int (*begin)(void *conf, const struct exec_hooks **hooks, struct sh_err *err);
};

int exec_program(const struct exec_program *p, int argc, char **argv); /* returns the exit status */

#endif
