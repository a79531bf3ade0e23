/* recent.c - see recent.h. */
#include "executor/report/recent.h"

#include "common/clock.h"
#include "common/mem.h"

#include <string.h>

#define NAMED (MSG_USE_ROWS - MSG_N_USES) /* the rest is for uses without a name */

static struct msg_use_row *row_of(struct recent *r, const char *tenant, enum msg_use use)
{
    struct msg_use_row *row = NULL;

    for (size_t i = 0; i < r->n_rows; i++)
        if (r->rows[i].use == use && strcmp(r->rows[i].tenant, tenant) == 0)
            return &r->rows[i];
    if (tenant[0] && r->n_rows >= NAMED)
        return row_of(r, "", use);
    row = &r->rows[r->n_rows++]; /* each use has room without a name */
    *row = (struct msg_use_row){.use = use};
    sh_strlcpy(row->tenant, tenant, sizeof(row->tenant));
    return row;
}

void recent_use(struct recent *r, const char *tenant, enum msg_use use, int64_t ns)
{
    row_of(r, tenant, use)->ns += ns;
}

void recent_switch(struct recent *r, const struct msg_switch *s)
{
    if (r->n_switches == MSG_SWITCHES) {
        memmove(r->switches, r->switches + 1, (MSG_SWITCHES - 1) * sizeof(*s));
        r->n_switches--;
    }
    r->switches[r->n_switches++] = *s;
}

void recent_say(struct recent *r, const struct uplink *up)
{
    const int64_t now = sh_clock_ns();
    struct sh_msg m = {.type = MSG_EXEC_USE};

    for (size_t i = 0; i < r->n_switches; i++)
        r->switches[i].age_ns = now - r->switches[i].age_ns;
    m.u.exec_use.rows = (struct sh_blob){r->rows, r->n_rows * sizeof(r->rows[0])};
    m.u.exec_use.switches = (struct sh_blob){r->switches, r->n_switches * sizeof(r->switches[0])};
    if (uplink_is_up(up) && (r->n_rows || r->n_switches))
        uplink_send(up, &m);
    r->n_rows = r->n_switches = 0;
}
