/* last_words.c - see last_words.h. */
#include "executor/report/last_words.h"

#include "common/log.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdlib.h>

static void clear(struct msg_job_state *s)
{
    free((char *)s->msg);
    free((char *)s->result);
    *s = (struct msg_job_state){0};
}

void last_words_keep(struct last_words *w, const struct msg_job_state *s)
{
    struct msg_job_state *to = &w->said[w->n++ % LAST_WORDS];
    char *msg = NULL, *result = NULL;

    clear(to);
    if (sh_strdup(s->msg, &msg, NULL) || sh_strdup(s->result, &result, NULL)) {
        SH_WARN("job.forgotten", "job=%" PRId64, s->job);
        free(msg);
        return;
    }
    *to = *s;
    to->msg = msg;
    to->result = result;
}

void last_words_forget(struct last_words *w, int64_t job)
{
    for (size_t i = 0; i < LAST_WORDS; i++)
        if (w->said[i].job == job)
            clear(&w->said[i]);
}

void last_words_send(const struct last_words *w, const struct uplink *u)
{
    for (size_t i = 0; i < LAST_WORDS; i++) {
        struct sh_msg m = {.type = MSG_JOB_STATE};

        m.u.job_state = w->said[i];
        if (w->said[i].job)
            uplink_send(u, &m);
    }
}

void last_words_fini(struct last_words *w)
{
    for (size_t i = 0; i < LAST_WORDS; i++)
        clear(&w->said[i]);
}
