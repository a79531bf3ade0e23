/* checks.h - what a system needs of this machine, and whether it is there: the list that `shunt
 * doctor` prints.
 *
 * Each check says what was found and, unless all is well, what to do. Nothing is changed, and
 * nothing waits longer than a few seconds. One thread.
 */
#ifndef SH_CLI_HOST_CHECKS_H
#define SH_CLI_HOST_CHECKS_H

#include "common/err.h"
#include "common/json.h"

enum check_state {
    CHECK_OK,
    CHECK_NOTE, /* no fault; good to know */
    CHECK_WARN, /* works, but slower or less safely than it could */
    CHECK_FAIL, /* what was asked for cannot work */
};
#define CHECK_STATES                      \
    {                                     \
        "ok", "note", "warning", "FAILED" \
    }
#define CHECK_N_STATES 4

struct checks {
    json_t *list; /* OWNED: [{"check","state","found","advice"}] */
    size_t n[CHECK_N_STATES];
    int rc; /* SH_E_NOMEM if one could not be added */
};

int checks_init(struct checks *k, struct sh_err *err);
void checks_fini(struct checks *k);
/* advice: what to do; NULL: nothing. The format is what was found. */
void checks_add(struct checks *k, const char *name, enum check_state state, const char *advice,
                const char *found, ...) __attribute__((format(printf, 5, 6)));

#endif
