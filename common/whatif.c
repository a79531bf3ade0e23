/* whatif.c - see whatif.h. */
#include "common/whatif.h"

#include "common/io.h"
#include "common/mem.h"
#include "common/spawn.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SMALLER "ask about fewer hours, or with a shorter trace"

/* The question travels in memory: no file stays behind, and nobody else can read it. */
static int put_question(const json_t *question, int *fd, struct sh_err *err)
{
    char *text = NULL;
    int rc = sh_json_dump_unsorted(question, &text, err);

    *fd = rc ? -1 : memfd_create("question", MFD_CLOEXEC);
    if (!rc && *fd < 0)
        rc = SH_FAIL(err, SH_E_IO, "could not pass the question on: %m");
    if (!rc && !sh_write_all(*fd, text, strlen(text)))
        rc = SH_FAIL(err, SH_E_IO, "could not pass the question on: %m");
    free(text);
    return rc;
}

static int read_answer(const char *text, size_t len, int status, json_t **out, struct sh_err *err)
{
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    const char *why = NULL;
    json_t *said = NULL;
    int rc;

    if (signal == SIGXCPU)
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "the question takes more processor time than it may have: " SMALLER);
    if (signal == SIGKILL || signal == SIGTERM) /* none of its limits sends these */
        return SH_FAIL(err, SH_E_UNAVAILABLE,
                       "shunt-simulate was killed by another process, or by the system for lack of "
                       "memory (signal %d)",
                       signal);
    if (signal)
        return SH_FAIL(err, SH_E_BUG, "shunt-simulate ended with signal %d", signal);
    rc = sh_json_parse(text, len, SH_WHATIF_MAX_ANSWER, &said, NULL);
    if (rc)
        return SH_FAIL(err, SH_E_BUG, "shunt-simulate ended with code %d and no answer",
                       WEXITSTATUS(status));
    if (WEXITSTATUS(status)) {
        rc = sh_json_refusal(said, SH_E_BUG, &why);
        rc = SH_FAIL(err, rc, "%s", why ? why : "shunt-simulate refused the question");
        json_decref(said);
        return rc;
    }
    *out = said;
    return SH_OK;
}

int sh_whatif_ask(const json_t *question, int64_t timeout_ms, const atomic_bool *stop, json_t **out,
                  struct sh_err *err)
{
    const char *argv[] = {"shunt-simulate", "--in", "/proc/self/fd/3", NULL};
    struct sh_spawn s = {.path = "shunt-simulate",
                         .argv = argv,
                         .keep = SH_ENV_SYSTEM,
                         .n_fds = 1,
                         .stdout_fd = -1,
                         .stderr_fd = -1,
                         .stop = stop};
    char *text = NULL;
    size_t len = 0;
    struct sh_err why = {0};
    int fd = -1, status = 0, rc;

    *out = NULL;
    rc = put_question(question, &fd, err);
    s.fds = &fd;
    if (!rc)
        rc = sh_spawn_run(&s, timeout_ms, SH_WHATIF_MAX_ANSWER, &text, &len, &status, &why);
    if (why.rc == SH_E_TIMEOUT)
        SH_FAIL(err, rc, "the question takes longer than %" PRId64 " s: " SMALLER,
                timeout_ms / 1000);
    else if (why.rc)
        SH_FAIL(err, rc, "%s", why.msg);
    if (!rc)
        rc = read_answer(text, len, status, out, err);
    free(text);
    if (fd >= 0)
        close(fd);
    return rc;
}
