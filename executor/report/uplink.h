/* uplink.h - what is said to the scheduler, from anywhere in an executor. agent.c holds the
 * connection, and takes what the scheduler says. */
#ifndef SH_EXECUTOR_REPORT_UPLINK_H
#define SH_EXECUTOR_REPORT_UPLINK_H

#include "common/wire.h"

struct uplink {           /* zeroed: nobody is there */
    struct sh_link *link; /* agent.c's */
    bool is_greeted;      /* the scheduler that is there was told all */
};

void uplink_send(const struct uplink *u,
                 const struct sh_msg *m);  /* dropped while nobody is there */
bool uplink_is_up(const struct uplink *u); /* a scheduler is there, and was greeted */

#endif
