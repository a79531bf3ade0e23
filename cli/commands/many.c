/* many.c - jobs from a file: a JSON array of jobs, {"jobs":[...]}, or one job a line. They are sent
 * in batches, each job with a token, so that a batch sent twice creates its jobs once. */
#include "cli/client/lists.h"
#include "cli/commands/job.h"
#include "common/buf.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE ((size_t)256 << 20)
#define MAX_JOB ((size_t)64 << 10)
#define ROOM_OF_RANGE 72 /* two numbers, or the words at the end */
#define BATCH_JOBS 1000u
#define BATCH_BYTES ((size_t)900 << 10) /* the server takes 1 MiB */

/* ---------------------------------------------------------------- read */

static int read_jobs_text(const char *path, struct sh_buf *b, struct sh_err *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *f = is_stdin ? stdin : fopen(path, "re");
    char piece[16384];
    size_t n;
    int rc = SH_OK;

    if (!f)
        return SH_FAIL_ERRNO(err, errno == ENOENT ? SH_E_NOTFOUND : SH_E_IO,
                             "could not open the file \"%s\"", path);
    while (!rc && (n = fread(piece, 1, sizeof(piece), f)) > 0)
        rc = sh_buf_append(b, piece, n, err);
    if (!rc && ferror(f))
        rc = SH_FAIL(err, SH_E_IO, "could not read the file \"%s\"", path);
    if (!is_stdin)
        fclose(f);
    return rc;
}

static int read_job_lines(const char *text, json_t *jobs, struct sh_err *err)
{
    size_t line = 1;

    for (const char *p = text; *p; line++) {
        size_t len = strcspn(p, "\n");
        struct sh_err one = {0};
        json_t *job = NULL;

        if (strspn(p, " \t\r") < len) {
            if (sh_json_parse(p, len, MAX_JOB, &job, &one))
                return SH_FAIL(err, one.rc, "line %zu: %.400s", line, one.msg);
            json_array_append_new(jobs, job);
        }
        p += len + (p[len] == '\n');
    }
    return SH_OK;
}

/* *out: OWNED array. */
static int read_jobs(const char *path, json_t **out, struct sh_err *err)
{
    struct sh_buf b;
    json_t *all = NULL, *jobs = json_array();
    const char *text;
    int rc;

    sh_buf_init(&b, MAX_FILE);
    rc = jobs ? read_jobs_text(path, &b, err)
              : SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");
    text = b.data ? b.data : "";
    text += strspn(text, " \t\r\n");
    if (!rc && text[0] == '[')
        rc = sh_json_parse(text, strlen(text), MAX_FILE, &all, err);
    else if (!rc && sh_json_parse(text, strlen(text), MAX_FILE, &all, NULL))
        rc = read_job_lines(b.data ? b.data : "", jobs, err);
    if (!rc && json_is_array(json_object_get(all, "jobs")))
        json_array_extend(jobs, json_object_get(all, "jobs"));
    else if (!rc && json_is_array(all))
        json_array_extend(jobs, all);
    else if (!rc && all)
        json_array_append(jobs, all);
    json_decref(all);
    sh_buf_fini(&b);
    if (!rc && json_array_size(jobs) == 0)
        rc = SH_FAIL(err, SH_E_INVALID, "there are no jobs in \"%s\"", path);
    if (rc)
        json_decref(jobs);
    else
        *out = jobs;
    return rc;
}

/* ---------------------------------------------------------------- send */

struct sent {
    json_t *results; /* OWNED: of all jobs so far */
    json_int_t created, failed;
    bool says_assumes; /* what is assumed was said */
};

/* The next batch: as many jobs from `first` on as one request takes. */
static int take_job_batch(json_t *jobs, size_t first, json_t **out, struct sh_err *err)
{
    json_t *batch = json_array();
    size_t bytes = 0;
    int rc = batch ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a batch");

    for (size_t i = first; !rc && i < json_array_size(jobs) && i - first < BATCH_JOBS; i++) {
        json_t *job = json_array_get(jobs, i);
        size_t len;

        if (json_is_object(job) && !json_object_get(job, "client_token"))
            rc = job_draw_token(job, err);
        len = json_dumpb(job, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
        if (rc || (bytes + len > BATCH_BYTES && i > first))
            break;
        bytes += len + 1;
        if (json_array_append(batch, job))
            rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a batch");
    }
    if (rc)
        json_decref(batch);
    else
        *out = batch;
    return rc;
}

static int send_batch(struct cli *c, const json_t *batch, struct sent *s, struct sh_err *err)
{
    json_t *body = json_pack("{s:O}", "jobs", batch), *j = NULL;
    int rc = body ? job_send(c, "/api/v1/job-batches", body, &j, err)
                  : SH_FAIL(err, SH_E_NOMEM, "could not allocate a batch");

    if (!rc && json_array_size(json_object_get(j, "items")) != json_array_size(batch))
        rc = SH_FAIL(err, SH_E_PROTO, "the server's answer has not as many results as jobs");
    if (!rc) {
        json_array_extend(s->results, json_object_get(j, "items"));
        s->created += json_integer_value(json_object_get(j, "created"));
        s->failed += json_integer_value(json_object_get(j, "failed"));
        if (!s->says_assumes)
            job_say_assumes(c, j);
        s->says_assumes |= json_object_get(j, "training_assumes") != NULL;
    }
    json_decref(body);
    json_decref(j);
    return rc;
}

/* 0: it was refused, or there is none. */
static json_int_t result_job(const json_t *results, size_t i)
{
    return json_integer_value(json_object_get(json_array_get(results, i), "job"));
}

/* "7-9, 12": the numbers in the order of the file, as far as there is room. */
static void ids_text(const json_t *results, char *out, size_t size)
{
    size_t n = 0, run;

    sh_strlcpy(out, "", size);
    for (size_t i = 0; i < json_array_size(results); i += run) {
        json_int_t id = result_job(results, i);

        run = 1;
        if (id == 0)
            continue;
        while (result_job(results, i + run) == id + (json_int_t)run)
            run++;
        if (n + ROOM_OF_RANGE > size) {
            snprintf(out + n, size - n, " ... (-o name prints each)");
            return;
        }
        n += (size_t)snprintf(out + n, size - n, "%s%" JSON_INTEGER_FORMAT, n ? ", " : "", id);
        if (run > 1)
            n += (size_t)snprintf(out + n, size - n, "-%" JSON_INTEGER_FORMAT,
                                  id + (json_int_t)run - 1);
    }
}

static void say_sent(const struct cli *c, const struct sent *s)
{
    char ids[400];
    bool is_several;

    ids_text(s->results, ids, sizeof(ids));
    is_several = ids[strspn(ids, "0123456789")] != '\0';
    out_say(c, "%" JSON_INTEGER_FORMAT " job%s submitted, %" JSON_INTEGER_FORMAT " refused.%s%s",
            s->created, s->created == 1 ? " was" : "s were", s->failed,
            !ids[0]      ? ""
            : is_several ? " Of the file: jobs "
                         : " Of the file: job ",
            ids);
}

/* all: the server has answered for every job of the file. */
static void print_sent(const struct cli *c, const struct sent *s, bool all)
{
    const json_t *x;
    size_t i;

    json_array_foreach(s->results, i, x)
    {
        char text[600];

        out_text(x, "error", OUT_TEXT, text, sizeof(text));
        if (c->output == OUTPUT_NAME && !c->conf->dry_run && result_job(s->results, i))
            printf("%" JSON_INTEGER_FORMAT "\n", result_job(s->results, i));
        if (c->output == OUTPUT_DATA || !json_object_get(x, "error"))
            continue;
        fprintf(stderr, "job %zu of the file: %s (%s)\n", i + 1, text, sh_json_text(x, "code"));
        out_errors(x, text);
    }
    if (c->output == OUTPUT_DATA)
        out_data(c, s->results);
    if (c->conf->dry_run && s->failed)
        out_say(c, "%" JSON_INTEGER_FORMAT " of %zu would be refused; this was a dry run.",
                s->failed, json_array_size(s->results));
    else if (all && list_said_dry_run(c))
        return;
    else if (!c->conf->dry_run)
        say_sent(c, s);
}

int jobs_submit_file(struct cli *c, struct sh_err *err)
{
    struct sent s = {.results = json_array()};
    struct sh_err one = {0};
    json_t *jobs = NULL;
    size_t done = 0;
    int rc = s.results ? read_jobs(c->conf->file, &jobs, err)
                       : SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");

    while (!rc && !one.rc && done < json_array_size(jobs)) {
        json_t *batch = NULL;

        rc = take_job_batch(jobs, done, &batch, err);
        if (!rc && !send_batch(c, batch, &s, &one))
            done += json_array_size(batch);
        json_decref(batch);
    }
    if (!rc)
        print_sent(c, &s, !one.rc);
    if (!rc && one.rc)
        rc = SH_FAIL(err, one.rc, "jobs %zu to %zu of the file were not submitted: %.400s",
                     done + 1, json_array_size(jobs), one.msg);
    else if (!rc && s.failed) {
        c->exit_code = CLI_REFUSED;
        rc = SH_FAIL(err, SH_E_CONFLICT, "%" JSON_INTEGER_FORMAT " of %zu jobs were refused",
                     s.failed, json_array_size(jobs));
    }
    json_decref(s.results);
    json_decref(jobs);
    return rc;
}
