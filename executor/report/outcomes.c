/* outcomes.c - see outcomes.h. */
#include "executor/report/outcomes.h"

#include "common/log.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdlib.h>

static void clear_outcome(struct msg_job_state *s)
{
    free((char *)s->msg);
    free((char *)s->result);
    *s = (struct msg_job_state){0};
}

void outcomes_keep(struct outcomes *w, const struct msg_job_state *s)
{
    struct msg_job_state *to = &w->said[w->n++ % OUTCOMES_MAX];
    char *msg = NULL, *result = NULL;

    clear_outcome(to);
    if (sh_strdup(s->msg, &msg, NULL) || sh_strdup(s->result, &result, NULL)) {
        SH_WARN("job.forgotten", "job=%" PRId64, s->job);
        free(msg);
        return;
    }
    *to = *s;
    to->msg = msg;
    to->result = result;
}

void outcomes_forget(struct outcomes *w, int64_t job)
{
    for (size_t i = 0; i < OUTCOMES_MAX; i++)
        if (w->said[i].job == job)
            clear_outcome(&w->said[i]);
}

void outcomes_send(const struct outcomes *w, const struct uplink *u)
{
    for (size_t i = 0; i < OUTCOMES_MAX; i++) {
        struct sh_msg m = {.type = MSG_JOB_STATE};

        m.u.job_state = w->said[i];
        if (w->said[i].job)
            uplink_send(u, &m);
    }
}

void outcomes_fini(struct outcomes *w)
{
    for (size_t i = 0; i < OUTCOMES_MAX; i++)
        clear_outcome(&w->said[i]);
}
