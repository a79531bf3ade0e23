/* uplink.h - sends messages to the scheduler, from anywhere in an executor. agent.c owns the
 * connection and handles what the scheduler says. */
#ifndef SH_EXECUTOR_REPORT_UPLINK_H
#define SH_EXECUTOR_REPORT_UPLINK_H

#include "common/wire.h"

struct uplink {           /* zeroed: not connected */
    struct sh_link *link; /* agent.c's */
    bool is_greeted;      /* the connected scheduler has had the full greeting */
    uint64_t n_ups;       /* connections so far */
};

void uplink_send(const struct uplink *u, const struct sh_msg *m); /* dropped while not connected */
bool uplink_is_up(const struct uplink *u);                        /* connected and greeted */

#endif
