/* uplink.c - see uplink.h. */
#include "executor/report/uplink.h"

#include "common/log.h"

void uplink_send(const struct uplink *u, const struct sh_msg *m)
{
    struct sh_wire *w = u->link ? sh_link_wire(u->link) : NULL;
    struct sh_err err = {0};

    if (w && sh_wire_send(w, m, &err))
        sh_log_err(SH_LOG_WARN, "scheduler.send", &err);
}

bool uplink_is_up(const struct uplink *u)
{
    return u->is_greeted;
}
