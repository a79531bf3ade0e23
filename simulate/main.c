/* main.c - shunt-simulate: a question in, its answer out, within limits. */
#include "common/conf.h"
#include "common/json.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/spawn.h"
#include "simulate/answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

struct options {
    char *in;
    int64_t memory_bytes, cpu_seconds;
};

#define MAX_QUESTION (size_t)(256 << 20)

static const struct sh_conf_opt OPTIONS[] = {
    SH_OPT_STR(struct options, in, "in", NULL, 0, "file with the question, as JSON"),
    SH_OPT_BYTES(struct options, memory_bytes, "memory-bytes", "2G", 67108864.0, 1099511627776.0, 0,
                 "limit on the process's memory"),
    SH_OPT_INT(struct options, cpu_seconds, "cpu-seconds", 60, 1, 86400, 0,
               "limit on processor time, in seconds"),
};

static const struct sh_conf_table TABLE = {
    .program = "shunt-simulate",
    .purpose = "Answers a what-if question about a snapshot by the scheduler's own decisions in "
               "virtual time. For `shunt simulate` and shunt-api.",
    .opts = OPTIONS,
    .n_opts = SH_ARRAY_LEN(OPTIONS),
    .struct_bytes = sizeof(struct options),
};

/* Beyond the hard limit the system would kill it: who asked could not tell why. */
static int limit(int what, rlim_t most, rlim_t hard, struct sh_err *err)
{
    const struct rlimit r = {most, hard};

    return setrlimit(what, &r) ? SH_FAIL(err, SH_E_IO, "could not set a limit: %m") : SH_OK;
}

/* It is the process's own limit: nothing here uses up the memory of the whole system. */
static void say_memory_limit(const struct options *o, struct sh_err *err)
{
    *err = (struct sh_err){0};
    SH_FAIL(err, SH_E_NOMEM,
            "the question takes more than the %" PRId64 " MiB of memory that it may have",
            o->memory_bytes >> 20);
}

static int ask_within_limits(const struct options *o, struct sh_err *err)
{
    json_t *question = NULL, *said = NULL;
    char *text = NULL;
    int rc = o->in ? limit(RLIMIT_AS, (rlim_t)o->memory_bytes, (rlim_t)o->memory_bytes, err)
                   : SH_FAIL(err, SH_E_INVALID, "--in is missing");

    if (!rc)
        rc = limit(RLIMIT_CPU, (rlim_t)o->cpu_seconds, (rlim_t)o->cpu_seconds + 1, err);
    if (!rc)
        rc = limit(RLIMIT_CORE, 0, 0, err);
    if (!rc)
        rc = sh_json_load_file(o->in, MAX_QUESTION, &question, err);
    if (!rc)
        rc = answer(question, &said, err);
    if (rc == SH_E_NOMEM)
        say_memory_limit(o, err);
    if (!rc)
        rc = sh_json_dump(said, &text, err);
    if (!rc && (puts(text) < 0 || fflush(stdout)))
        rc = SH_FAIL(err, SH_E_IO, "could not write the answer: %m");
    free(text);
    json_decref(question);
    json_decref(said);
    return rc;
}

/* A refusal is a result as well: {"code", "error"}, and exit status 1. */
static void refuse_question(const struct sh_err *err)
{
    json_t *o = json_pack("{s:s, s:s}", "code", sh_rc_name(err->rc), "error", err->msg);

    if (o && json_dumpf(o, stdout, JSON_COMPACT) == 0)
        puts("");
    json_decref(o);
}

int main(int argc, char **argv)
{
    static struct options o;
    enum sh_conf_action action = SH_CONF_RUN;
    struct sh_err err = {0};
    int rc;

    sh_log_init("shunt-simulate", SH_LOG_WARN);
    rc = sh_spawn_child_init(&err); /* nobody waits for an answer whose asker is gone */
    if (!rc)
        rc = sh_conf_load(&TABLE, &o, argc, argv, NULL, NULL, &action, &err);
    if (!rc && action == SH_CONF_RUN)
        rc = ask_within_limits(&o, &err);
    if (rc)
        refuse_question(&err);
    sh_conf_free(&TABLE, &o);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
