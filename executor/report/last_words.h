/* last_words.h - how jobs of this executor ended, for a scheduler that connects later. The last
 * LAST_WORDS of them are kept, until the scheduler starts the job again. */
#ifndef SH_EXECUTOR_REPORT_LAST_WORDS_H
#define SH_EXECUTOR_REPORT_LAST_WORDS_H

#include "executor/report/uplink.h"

#define LAST_WORDS 64

struct last_words {
    struct msg_job_state said[LAST_WORDS]; /* a ring; msg and result are OWNED copies */
    size_t n;
};

void last_words_keep(struct last_words *w, const struct msg_job_state *s);
void last_words_forget(struct last_words *w, int64_t job);
void last_words_send(const struct last_words *w, const struct uplink *u);
void last_words_fini(struct last_words *w);

#endif
