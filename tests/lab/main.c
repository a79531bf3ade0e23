/* main.c - shunt-executor with the options of lab.h. */
#include "common/mem.h"
#include "executor/program.h"
#include "tests/lab/lab.h"

#include <stdlib.h>
#include <string.h>

#define MAX_OPTIONS 128

static int begin(void *conf, const struct exec_hooks **hooks, struct sh_err *err)
{
    static struct lab lab;
    const struct lab_conf *c = conf;

    return lab_init(&lab, &c->lab, hooks, err);
}

int main(int argc, char **argv)
{
    struct sh_conf_opt opts[MAX_OPTIONS];
    struct sh_conf_table table = EXEC_OPTIONS;
    struct lab_conf conf = {.lab = {.is_cold = false}};
    const struct exec_program p = {.options = &table, .conf = &conf.exec, .begin = begin};

    if (EXEC_OPTIONS.n_opts + LAB_N_OPTIONS > MAX_OPTIONS)
        abort();
    memcpy(opts, EXEC_OPTIONS.opts, EXEC_OPTIONS.n_opts * sizeof(*opts));
    memcpy(opts + EXEC_OPTIONS.n_opts, LAB_OPTIONS, LAB_N_OPTIONS * sizeof(*opts));
    table.opts = opts;
    table.n_opts = EXEC_OPTIONS.n_opts + LAB_N_OPTIONS;
    table.struct_bytes = sizeof(conf);
    table.absent = NULL;
    return exec_program(&p, argc, argv);
}
