/* status.c - `shunt status`: the processes of a local system, health, executors, models, jobs. */
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "cli/commands/overview.h"
#include "cli/local/state.h"
#include "cli/text/out.h"
#include "common/clock.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>

/* The supervisor's list, checked against the processes themselves. */
static int read_processes(const struct state *s, json_t **out, struct sh_err *err)
{
    json_t *system = NULL, *p;
    size_t i;
    int rc = state_read_system(s, &system, err);

    if (!rc && !system)
        system = json_pack("{s:[]}", "processes");
    json_array_foreach(json_object_get(system, "processes"), i, p)
    {
        pid_t pid = state_pid(s, sh_json_text(p, "name"));
        json_int_t port = json_integer_value(
            json_object_get(json_object_get(system, "metrics_ports"), sh_json_text(p, "name")));
        char url[STATE_URL_MAX] = "";
        int64_t age =
            (sh_clock_wall_ms() - json_integer_value(json_object_get(p, "since_ms"))) / 1000;

        if (pid == 0 && strcmp(sh_json_text(p, "state"), "running") == 0)
            json_object_set_new(p, "state", json_string("gone"));
        json_object_set_new(p, "pid", pid > 0 ? json_integer(pid) : json_null());
        json_object_set_new(p, "age_s", json_integer(age));
        if (port > 0)
            state_metrics_url(json_string_value(json_object_get(system, "metrics_host")), (int)port,
                              url);
        json_object_set_new(p, "metrics", port > 0 ? json_string(url) : json_null());
    }
    *out = system;
    return rc;
}

/* TAKES list; NULL: the key may not see it. */
static void set_system_list(json_t *system, const char *name, json_t *list)
{
    json_object_set_new(system, name, list ? list : json_null());
}

static void print_processes(struct cli *c, const json_t *system)
{
    static const struct out_col COLS[] = {
        {"PROCESS", "name", OUT_TEXT},      {"STATE", "state", OUT_TEXT},
        {"PID", "pid", OUT_TEXT},           {"FOR, S", "age_s", OUT_TEXT, .spare = 1},
        {"RESTARTS", "restarts", OUT_TEXT}, {"LAST END", "last_end", OUT_TEXT, .spare = 2},
        {"METRICS", "metrics", OUT_TEXT}};

    out_list(c, json_object_get(system, "processes"), COLS, SH_ARRAY_LEN(COLS), "name", NULL);
}

/* s NULL: of a system elsewhere, whose processes are not known here. */
static int print_status(struct cli *c, const struct state *s, struct sh_err *err)
{
    json_t *system = NULL;
    char live[200], ready[200];
    bool is_live, is_ready;
    struct overview_left left;
    int rc = s ? read_processes(s, &system, err) : SH_OK;

    if (rc)
        return rc;
    is_live = overview_health(c, "/v2/health/live", live, sizeof(live));
    is_ready = is_live && overview_health(c, "/v2/health/ready", ready, sizeof(ready));
    if (!s)
        system = json_pack("{s:s, s:n}", "server", c->conf->server, "processes");
    if (c->output == OUTPUT_DATA) {
        json_object_set_new(system, "live", json_boolean(is_live));
        json_object_set_new(system, "ready", json_boolean(is_ready));
        set_system_list(system, "models", overview_models(c, NULL));
        set_system_list(system, "jobs", overview_jobs(c, false, &left, NULL));
        out_data(c, system);
    } else {
        printf("%s  API %s  requests %s%s\n",
               !s                                   ? "elsewhere"
               : state_pid(s, STATE_SUPERVISOR) > 0 ? "up"
                                                    : "no supervisor: shunt down, then shunt up",
               is_live ? c->server : live,
               !is_live   ? "-"
               : is_ready ? "ready"
                          : "not ready: ",
               is_live && !is_ready ? ready : "");
        if (s)
            print_processes(c, system);
        if (is_live && c->output == OUTPUT_TABLE)
            overview_print(c);
    }
    json_decref(system);
    if (!is_live)
        return SH_FAIL(err, SH_E_UNAVAILABLE, "the API does not answer");
    if (is_ready)
        return SH_OK;
    c->exit_code = CLI_REFUSED; /* it was reached */
    return SH_FAIL(err, SH_E_UNAVAILABLE, "not ready: %s", ready);
}

/* Of the system in the state folder, whatever server a profile names; without one here, of that
 * server. */
int status_main(struct cli *c, struct sh_err *err)
{
    const bool is_named = c->conf->server && c->conf->server[0];
    struct sh_err now = {0};
    struct state s;
    json_t *system = NULL;
    int rc = state_open(c->conf->state_dir, false, &s, &now);

    if (!rc)
        rc = state_read_system(&s, &system, &now);
    if (rc && rc != SH_E_NOTFOUND) {
        sh_err_copy(err, &now);
        goto out;
    }
    c->exit_code = CLI_NOT_REACHABLE;
    if (system) {
        free(c->conf->server);
        c->conf->server = NULL;
        rc = print_status(c, &s, err);
    } else if (is_named) {
        rc = print_status(c, NULL, err);
    } else {
        rc = rest_no_system(c, err);
    }
out:
    json_decref(system);
    state_close(&s);
    return rc;
}
