/* checks.c - see checks.h. */
#include "cli/host/checks.h"

#include <stdarg.h>
#include <stdio.h>

int checks_init(struct checks *k, struct sh_err *err)
{
    *k = (struct checks){.list = json_array()};
    return k->list ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate the list of checks");
}

void checks_fini(struct checks *k)
{
    json_decref(k->list);
    *k = (struct checks){0};
}

void checks_add(struct checks *k, const char *name, enum check_state state, const char *advice,
                const char *found, ...)
{
    static const char *const STATES[CHECK_N_STATES] = CHECK_STATES;
    char text[768];
    va_list ap;

    va_start(ap, found);
    vsnprintf(text, sizeof(text), found, ap);
    va_end(ap);
    k->n[state]++;
    if (json_array_append_new(k->list, json_pack("{s:s, s:s, s:s, s:s}", "check", name, "state",
                                                 STATES[state], "found", text, "advice",
                                                 advice && state != CHECK_OK ? advice : "")) != 0)
        k->rc = SH_E_NOMEM;
}
