/* state.c - the state of state.patch passes through the table of a job's life. */
#include "common/job_state.h"
#include "scheduler/decide/job.h"

#include <stdio.h>
#include <string.h>

static int n_failed;

static void check(bool holds, const char *what)
{
    if (!holds)
        printf("FAIL  %s\n", what);
    n_failed += !holds;
}

int main(void)
{
    struct job j = {.state = JOB_HELD};
    enum job_state thrown;

    check(job_state_parse("THROWN", &thrown, NULL) == SH_OK, "it has its name");
    check(strcmp(job_state_name(thrown), "THROWN") == 0, "and its name is it");
    check(!job_state_has_executor(thrown) && !job_state_is_final(thrown), "it waits");
    check(strstr(SH_JOB_IS_WAITING, "'THROWN'") != NULL, "for statements too");
    check(job_set_state(&j, thrown, "asked", NULL) == SH_OK, "HELD goes to it");
    check(job_set_state(&j, JOB_RUNNING, "", NULL) == SH_E_CONFLICT, "no executor takes it");
    check(job_set_state(&j, JOB_HELD, "asked", NULL) == SH_OK, "it goes back to HELD");
    check(j.n_pending == 2 && j.pending[1].from == thrown, "both changes have an event");
    return n_failed > 0;
}
