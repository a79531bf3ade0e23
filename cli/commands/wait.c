/* wait.c - waits for the end of jobs, and tells why they wait. */
#include "cli/client/lists.h"
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "cli/commands/job.h"
#include "cli/commands/model.h"
#include "common/clock.h"
#include "common/job_state.h"
#include "common/mem.h"
#include "common/units.h"

#include <stdio.h>

#define POLL_MS 250
#define LOOK_MS 1000

static void show_job(struct progress *bar, const json_t *j)
{
    double step = json_number_value(json_object_get(j, "step"));
    double steps = json_number_value(json_object_get(j, "steps"));
    bool is_batch = strcmp(sh_json_text(j, "kind"), "batch_inference") == 0;
    const json_t *loss = json_object_get(j, "loss");
    char text[32] = "";

    if (job_waits(j) && step <= 0) {
        progress_show(bar, -1, "job %" JSON_INTEGER_FORMAT " is %s",
                      json_integer_value(json_object_get(j, "id")), sh_json_text(j, "state"));
        return;
    }
    if (!is_batch)
        snprintf(text, sizeof(text), ", loss -");
    if (json_is_number(loss))
        snprintf(text, sizeof(text), ", loss %.4f", json_number_value(loss));
    progress_show(bar, steps > 0 ? step / steps : -1,
                  "job %" JSON_INTEGER_FORMAT " %s: %s %.0f of %.0f%s, %.0f samples/s",
                  json_integer_value(json_object_get(j, "id")), sh_json_text(j, "state"),
                  is_batch ? "sample" : "step", step, steps, text,
                  json_number_value(json_object_get(j, "samples_per_s")));
}

/* *out is NULL while the server is away for a moment: the job goes on without it. *seen_ns: 0 at
 * first. */
static int look_at_job(struct cli *c, const char *path, int64_t *seen_ns, json_t **out,
                       struct sh_err *err)
{
    struct sh_err now = {0};
    int rc = rest_get(c, path, REST_TENANT, out, &now);

    if (rest_is_away(c, rc, *seen_ns))
        return SH_OK;
    if (!rc)
        *seen_ns = sh_clock_ns();
    return rc ? sh_err_copy(err, &now) : SH_OK;
}

/* The first line of an explanation. */
static void print_why(FILE *f, const char *id, const json_t *explained)
{
    char text[800], reason[64];

    out_text(explained, "text", OUT_TEXT, text, sizeof(text));
    out_text(explained, "reason", OUT_TEXT, reason, sizeof(reason));
    fprintf(f, "Job %s is %s%s%s. %s\n", id, sh_json_text(explained, "state"),
            sh_json_text(explained, "reason")[0] ? ", " : "",
            sh_json_text(explained, "reason")[0] ? reason : "", text);
}

struct why { /* what was seen of a job that waits, and how often in a row */
    char seen[96];
    int n;
    int64_t looked_ns;
};

/* Why it waits, once for each reason that is seen twice: those of a moment end by themselves. */
static void say_job_why(struct cli *c, struct progress *bar, const struct job_end *e,
                        const json_t *j, struct why *w)
{
    char now[sizeof(w->seen)], id[24], path[REST_PATH_MAX];
    json_t *job, *explained = NULL;

    if (c->conf->quiet || sh_clock_ns() - w->looked_ns < SH_MS(e->look_ms))
        return;
    w->looked_ns = sh_clock_ns();
    job = e->waiting(c, j);
    snprintf(now, sizeof(now), "%s %s", sh_json_text(job, "state"), sh_json_text(job, "reason"));
    if (strcmp(now, w->seen) != 0) {
        sh_strlcpy(w->seen, now, sizeof(w->seen));
        w->n = 0;
    }
    snprintf(id, sizeof(id), "%" JSON_INTEGER_FORMAT,
             json_integer_value(json_object_get(job, "id")));
    if (++w->n == 2 && job && !job_path(c, path, id, "explain", NULL) &&
        !rest_get(c, path, REST_TENANT | REST_QUIET, &explained, NULL)) {
        progress_end(bar);
        print_why(stderr, id, explained);
    }
    json_decref(explained);
    json_decref(job);
}

int job_wait_end(struct cli *c, const struct job_end *e, json_t **out, struct sh_err *err)
{
    int64_t end = sh_clock_ns() + SH_S(c->conf->wait_s), seen_ns = 0;
    struct why why = {0};
    struct progress bar;
    int rc = SH_OK;

    progress_begin(c, &bar);
    *out = NULL;
    while (!rc) {
        rc = look_at_job(c, e->path, &seen_ns, out, err);
        if (rc || (*out && e->has_ended(*out)))
            break;
        if (*out) {
            say_job_why(c, &bar, e, *out, &why);
            e->show(&bar, *out);
        }
        if (sh_clock_ns() > end)
            rc = SH_FAIL(err, SH_E_TIMEOUT, "%s %s has not ended after %lld s; it goes on", e->what,
                         e->id, (long long)c->conf->wait_s);
        json_decref(*out);
        *out = NULL;
        if (!rc)
            cli_sleep_ms(POLL_MS);
    }
    progress_end(&bar);
    return rc;
}

/* ---------------------------------------------------------------- suspended */

/* Of a job, or of an array, whose jobs are counted by state. */
static bool is_off_executors(const json_t *j)
{
    static const char *const ON[] = {
#define X(name) #name,
        SH_JOB_ON_EXECUTOR(X, )
#undef X
    };
    const json_t *states = json_object_get(j, "states");

    for (size_t i = 0; i < SH_ARRAY_LEN(ON); i++)
        if (states ? json_integer_value(json_object_get(states, ON[i])) > 0
                   : strcmp(sh_json_text(j, "state"), ON[i]) == 0)
            return false;
    return true;
}

static void show_off(struct progress *bar, const json_t *j)
{
    progress_show(bar, -1, "%s %" JSON_INTEGER_FORMAT " is being suspended",
                  json_object_get(j, "states") ? "array" : "job",
                  json_integer_value(json_object_get(j, "id")));
}

static json_t *none_waits(struct cli *c, const json_t *j)
{
    (void)c;
    (void)j;
    return NULL;
}

int job_wait_off(struct cli *c, const char *path, const char *what, const char *id,
                 struct sh_err *err)
{
    const struct job_end e = {path, what, id, is_off_executors, show_off, none_waits, LOOK_MS};
    json_t *j = NULL;
    int rc = job_wait_end(c, &e, &j, err);

    if (rc == SH_E_TIMEOUT && err)
        snprintf(err->msg, sizeof(err->msg), "%s %s is still on an executor after %lld s", what, id,
                 (long long)c->conf->wait_s);
    if (!rc && json_object_get(j, "states"))
        out_say(c, "No job of array %s is on an executor.", id);
    else if (!rc)
        out_say(c, "Job %s is %s at step %" JSON_INTEGER_FORMAT ".", id, sh_json_text(j, "state"),
                json_integer_value(json_object_get(j, "step")));
    json_decref(j);
    return rc;
}

/* ---------------------------------------------------------------- ended */

static bool has_job_ended(const json_t *j)
{
    return job_is_final(sh_json_text(j, "state"));
}

static json_t *itself(struct cli *c, const json_t *j)
{
    (void)c;
    return job_waits(j) ? json_incref((json_t *)j) : NULL;
}

/* It became no version: what it left is fetched. */
static void say_result(struct cli *c, const json_t *j)
{
    const json_t *result = json_object_get(j, "result");
    json_int_t id = json_integer_value(json_object_get(j, "id"));
    const json_t *accuracy = json_object_get(result, "accuracy");
    char what[48] = "", bytes[32];

    if (json_object_get(result, "samples"))
        snprintf(what, sizeof(what), "%" JSON_INTEGER_FORMAT " samples, ",
                 json_integer_value(json_object_get(result, "samples")));
    else if (json_is_number(accuracy))
        snprintf(what, sizeof(what), "accuracy %.6g, ", json_number_value(accuracy));
    out_text(result, "bytes", OUT_BYTES, bytes, sizeof(bytes));
    out_say(c,
            "Job %" JSON_INTEGER_FORMAT " SUCCEEDED: %s%s. Next: shunt result %" JSON_INTEGER_FORMAT
            " --out FILE",
            id, what, bytes, id);
}

static int report_end(struct cli *c, const json_t *j, struct sh_err *err)
{
    const json_t *result = json_object_get(j, "result");
    const char *state = sh_json_text(j, "state");
    json_int_t id = json_integer_value(json_object_get(j, "id"));
    bool is_rated = json_is_number(json_object_get(result, "accuracy"));
    char accuracy[32], version[32];

    if (c->output == OUTPUT_DATA)
        out_data(c, j);
    if (strcmp(state, "SUCCEEDED") != 0) {
        c->exit_code = CLI_REFUSED;
        return SH_FAIL(err, SH_E_CONFLICT, "job %" JSON_INTEGER_FORMAT " is %s%s%s", id, state,
                       sh_json_text(j, "error")[0] ? ": " : "", sh_json_text(j, "error"));
    }
    if (!json_is_integer(json_object_get(j, "result_version"))) {
        say_result(c, j);
        return SH_OK;
    }
    out_text(result, "accuracy", OUT_NUMBER, accuracy, sizeof(accuracy));
    out_text(j, "result_version", OUT_TEXT, version, sizeof(version));
    out_say(c, "Job %" JSON_INTEGER_FORMAT " SUCCEEDED: %s:%s%s%s.", id, sh_json_text(j, "model"),
            version, is_rated ? ", accuracy " : "", is_rated ? accuracy : "");
    return SH_OK;
}

static int wait_for_job(struct cli *c, const char *id, bool served, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    const struct job_end e = {path, "job", id, has_job_ended, show_job, itself, LOOK_MS};
    json_t *j = NULL;
    int64_t version;
    int rc = job_path(c, path, id, NULL, err);

    if (!rc)
        rc = job_wait_end(c, &e, &j, err);
    if (!rc)
        rc = report_end(c, j, err);
    version = json_integer_value(json_object_get(j, "result_version"));
    if (!rc && served && version)
        rc = model_wait_version(c, sh_json_text(j, "model"), version, "READY", err);
    json_decref(j);
    return rc;
}

int job_wait_and_serve(struct cli *c, const char *id, struct sh_err *err)
{
    return wait_for_job(c, id, true, err);
}

int job_wait(struct cli *c, struct sh_err *err)
{
    return wait_for_job(c, c->args[0], false, err);
}

/* ---------------------------------------------------------------- explain */

static void say_holders(const json_t *holders)
{
    const json_t *h;
    size_t i;

    json_array_foreach(holders, i, h)
    {
        char exec[64], job[32], state[32], left[32], rate[40] = "";
        double per_s = json_number_value(json_object_get(h, "steps_per_s"));

        out_text(h, "executor", OUT_TEXT, exec, sizeof(exec));
        out_text(h, "job", OUT_TEXT, job, sizeof(job));
        out_text(h, "state", OUT_TEXT, state, sizeof(state));
        out_text(h, "steps_left", OUT_TEXT, left, sizeof(left));
        if (per_s > 0) /* not in its first moment */
            snprintf(rate, sizeof(rate), " at %.3g a second", per_s);
        if (!json_object_get(h, "state"))
            printf("  %s is free.\n", exec);
        else
            printf("  %s has %s%s: %s, %s steps left%s.\n", exec,
                   json_object_get(h, "job") ? "job " : "a job of another tenant",
                   json_object_get(h, "job") ? job : "", state, left, rate);
    }
}

/* What the explanation of one that has ended badly points at. */
static int say_error(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX], text[600];
    json_t *j = NULL;
    int rc = job_path(c, path, c->args[0], NULL, err);

    if (!rc)
        rc = rest_get(c, path, REST_TENANT, &j, err);
    out_text(j, "error", OUT_TEXT, text, sizeof(text));
    if (!rc && sh_json_text(j, "error")[0])
        printf("The error: %s\n", text);
    json_decref(j);
    return rc;
}

/* Numbers are jobs, names are models. */
int job_explain(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX], basis[400], start[40];
    json_t *j = NULL;
    int rc;

    if (strspn(c->args[0], "0123456789") != strlen(c->args[0]))
        return model_explain(c, err);
    rc = job_path(c, path, c->args[0], "explain", err);
    if (!rc)
        rc = rest_get(c, path, REST_TENANT, &j, err);
    if (!rc && c->output != OUTPUT_TABLE) {
        rc = out_object(c, j, "reason", err);
    } else if (!rc) {
        out_text(j, "estimated_start", OUT_TEXT, start, sizeof(start));
        out_text(j, "basis", OUT_TEXT, basis, sizeof(basis));
        print_why(stdout, c->args[0], j);
        say_holders(json_object_get(j, "waits_for"));
        if (json_object_get(j, "position"))
            printf("It is number %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT
                   " that may start.\n",
                   json_integer_value(json_object_get(j, "position")),
                   json_integer_value(json_object_get(j, "waiting")));
        if (json_object_get(j, "estimated_start"))
            printf("Estimated start: %s, by %s.\n", start, basis);
        else if (json_object_get(j, "basis"))
            printf("Estimated start: %s.\n", basis);
        if (strcmp(sh_json_text(j, "state"), "FAILED") == 0 ||
            strcmp(sh_json_text(j, "state"), "EXPIRED") == 0)
            rc = say_error(c, err);
    }
    json_decref(j);
    return rc;
}
