/* list.c - shunt-run infer --list: many models in one process, since starting one costs more than
 * most of them.
 *
 * A line is {"model","inputs","outputs"}, its answer {"ok":true} or {"ok":false,"code","error"}. A
 * reader that gets fewer answers than it has lines knows which of them ended the process.
 */
#include "common/json.h"
#include "common/mem.h"
#include "runtime/run/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_LINE ((size_t)64 << 10)

static int run_line(const struct run_conf *c, const char *line, size_t len, struct sh_err *err)
{
    struct run_conf one = *c;
    const char *model, *inputs, *outputs;
    const struct sh_json_field f[] = {
        {"model", SH_JSON_STR, &model, .required = true},
        {"inputs", SH_JSON_STR, &inputs, .required = true},
        {"outputs", SH_JSON_STR, &outputs, .required = true},
    };
    json_t *j = NULL;
    int rc = sh_json_parse(line, len, MAX_LINE, &j, err);

    if (!rc)
        rc = sh_json_read(j, "line", f, SH_ARRAY_LEN(f), err);
    if (!rc) {
        one.list = NULL;
        one.model = (char *)(uintptr_t)model;
        one.inputs = (char *)(uintptr_t)inputs;
        one.outputs = (char *)(uintptr_t)outputs;
        rc = infer_run(&one, err);
    }
    json_decref(j);
    return rc;
}

static int answer_line(int rc, const struct sh_err *why, struct sh_err *err)
{
    json_t *j = rc ? json_pack("{s:b,s:s,s:s}", "ok", 0, "code", sh_rc_name(rc), "error", why->msg)
                   : json_pack("{s:b}", "ok", 1);
    bool done = j && json_dumpf(j, stdout, JSON_COMPACT) == 0 && putchar('\n') != EOF &&
                fflush(stdout) == 0;

    json_decref(j);
    return done ? SH_OK : SH_FAIL_ERRNO(err, SH_E_IO, "could not write an answer");
}

int list_run(const struct run_conf *c, struct sh_err *err)
{
    FILE *f = fopen(c->list, "re");
    struct dev_lib *lib = NULL; /* held, so that it is not loaded anew for each line */
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc;

    if (!f)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not open the list %s", c->list);
    rc = dev_lib_open(c->device, &lib, err);
    while (!rc && (n = getline(&line, &cap, f)) > 0) {
        struct sh_err why = {0};
        int one = run_line(c, line, (size_t)n, &why);

        rc = answer_line(one, &why, err);
    }
    if (!rc && ferror(f))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not read the list %s", c->list);
    dev_lib_close(lib);
    free(line);
    fclose(f);
    return rc;
}
