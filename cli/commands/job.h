/* job.h - shared by the commands about jobs. */
#ifndef SH_CLI_COMMANDS_JOB_H
#define SH_CLI_COMMANDS_JOB_H

#include "cli/client/rest.h"

/* "/api/v1/jobs/ID[/below]"; fails as wrong usage if the id is not a number. */
int job_path(struct cli *c, char path[static REST_PATH_MAX], const char *id, const char *below,
             struct sh_err *err);
bool job_is_final(const char *state);
bool job_waits(const json_t *job); /* no executor has it */
/* Sorts as squeue does: running, by priority; waiting; then ended, newest first. */
void job_sort(json_t *jobs);

/* Submits; repeats it if the server goes away meanwhile, since the body has a token. */
int job_send(struct cli *c, const char *path, const json_t *body, json_t **out, struct sh_err *err);
int job_draw_token(json_t *job, struct sh_err *err); /* sets its client_token */
/* "It trains digits from version 1." for a job, "They train ..." for an array; "" for batch
 * inference, and unless --model names no version. */
void job_base_text(const struct cli *c, const json_t *j, const char *it, char *out, size_t size);
/* Prints the answer to a submission. noun: "job" or "array"; text: a sentence for people. */
void job_say_made(struct cli *c, const json_t *j, const char *noun, const char *id,
                  const char *text);
/* What it trains by assumption, if the answer to a submission has anything of that. */
void job_say_assumes(struct cli *c, const json_t *answer);

/* wait.c */
struct progress;
struct job_end { /* what to wait for */
    const char *path, *what, *id;
    bool (*has_ended)(const json_t *j);
    void (*show)(struct progress *bar, const json_t *j);
    /* The job in j whose wait is the reason, asked every look_ms. OWNED; may be NULL. */
    json_t *(*waiting)(struct cli *c, const json_t *j);
    int64_t look_ms;
};
/* Looks at the path until it has ended, for at most --wait-s; meanwhile show() draws, and stderr
 * tells why a job waits. *out: OWNED. Fails: SH_E_TIMEOUT, naming what and id. */
int job_wait_end(struct cli *c, const struct job_end *e, json_t **out, struct sh_err *err);
/* Waits until no executor has the job, or any job of the array, at this path. */
int job_wait_off(struct cli *c, const char *path, const char *what, const char *id,
                 struct sh_err *err);
/* For one job; a version that it made is READY then. */
int job_wait_and_serve(struct cli *c, const char *id, struct sh_err *err);
int jobs_submit_file(struct cli *c, struct sh_err *err);                          /* many.c */
int array_submit(struct cli *c, json_t *job, bool *is_array, struct sh_err *err); /* array.c */

#endif
