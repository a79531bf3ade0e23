/* jobctl.h - what a client may do with a job, by its place. Pure.
 *
 * A job's place is its state, plus, after '+', a wish that its executor has not answered yet:
 * "RUNNING", "RUNNING+SUSPEND". An action is a set of arrows between places; the statement that
 * carries it out (store_job_control) and the list of allowed actions come from the same table.
 */
#ifndef SH_API_SPEC_JOBCTL_H
#define SH_API_SPEC_JOBCTL_H

#include "common/json.h"

struct jobctl_arrow {
    const char *from, *to; /* place; state */
};

struct jobctl {
    const char *name;
    const char *wish;   /* the job's wish afterwards */
    const char *reason; /* reason in the event, and in the job if its state changes */
    bool save;          /* asks for a checkpoint */
    const struct jobctl_arrow *arrows;
    size_t n_arrows;
    const char *done; /* places where it is done already: "HELD" or "A B" */
};

const struct jobctl *jobctl_find(const char *name); /* BORROWED, static; NULL: no such action */
/* job: as the API shows it. Repeating an action is no error. */
bool jobctl_is_done(const struct jobctl *c, const json_t *job);
bool jobctl_has_flag(const json_t *job, const char *flag);
/* The actions allowed for the job: {"state","flags","allowed":[...]}. *out: OWNED. */
int jobctl_choices(const json_t *job, json_t **out, struct sh_err *err);
/* "it is RUNNING; allowed: suspend, requeue, checkpoint, cancel" */
void jobctl_say(const json_t *choices, char *out, size_t size);

#endif
