/* recent.h - who has had the device since the scheduler was last told, and the last switches.
 *
 * For people who look at a system: nothing is decided by it, and what is lost is lost. It has room
 * for MSG_USE_ROWS tenants' uses; what more tenants had is said without their names. Belongs to the
 * loop's thread.
 */
#ifndef SH_EXECUTOR_REPORT_RECENT_H
#define SH_EXECUTOR_REPORT_RECENT_H

#include "executor/report/uplink.h"

struct recent { /* zeroed: nothing */
    struct msg_use_row rows[MSG_USE_ROWS];
    size_t n_rows;
    struct msg_switch switches[MSG_SWITCHES]; /* age_ns: when it was; the oldest one goes first */
    size_t n_switches;
};

void recent_use(struct recent *r, const char *tenant, enum msg_use use, int64_t ns);
void recent_switch(struct recent *r, const struct msg_switch *s); /* age_ns: of sh_clock_ns() */
/* Says all of it, if there is a scheduler, and forgets it. */
void recent_say(struct recent *r, const struct uplink *up);

#endif
