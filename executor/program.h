/* program.h - the process shunt-executor: options, signals, metrics, one executor. main.c starts it
 * as it is in a release, lab/main.c with the options of the laboratory.
 */
#ifndef SH_EXECUTOR_PROGRAM_H
#define SH_EXECUTOR_PROGRAM_H

#include "executor/exec.h"

struct exec_program {
    const struct sh_conf_table *options;
    struct exec_conf *conf; /* what they fill; it may be the first member of something larger */
    /* After the options are read; NULL: no hooks. *hooks: BORROWED for the life of the process. */
    int (*begin)(void *conf, const struct exec_hooks **hooks, struct sh_err *err);
};

int exec_program(const struct exec_program *p, int argc, char **argv); /* what main() returns */

#endif
