/* outcomes.h - remembers how jobs of this executor ended, for a scheduler that connects later: the
 * last OUTCOMES_MAX jobs, each until the scheduler starts it again. */
#ifndef SH_EXECUTOR_REPORT_OUTCOMES_H
#define SH_EXECUTOR_REPORT_OUTCOMES_H

#include "executor/report/uplink.h"

#define OUTCOMES_MAX 64

struct outcomes {
    struct msg_job_state said[OUTCOMES_MAX]; /* a ring; msg and result are OWNED copies */
    size_t n;
};

void outcomes_keep(struct outcomes *w, const struct msg_job_state *s);
void outcomes_forget(struct outcomes *w, int64_t job);
void outcomes_send(const struct outcomes *w, const struct uplink *u);
void outcomes_fini(struct outcomes *w);

#endif
