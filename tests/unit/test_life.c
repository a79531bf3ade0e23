/* test_life.c - a step that a table of states does not have ends the process; each pair of states
 * of each life is either taken or does that. */
/* uses: executor/pool/worker_life.o executor/runs/run_life.o executor/models/model_life.o executor/training/job_life.o executor/batch/slot_life.o scheduler/decide/job.o scheduler/pass/request_life.o scheduler/models/version_life.o */
#include "common/life.h"
#include "tests/lives.h"
#include "tests/unit/sh_test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EGG, BIRD, DEAD, N };
static const char *const NAMES[N] = {"egg", "bird", "dead"};
static const unsigned NEXT[N] = {[EGG] = SH_LIFE(BIRD) | SH_LIFE(DEAD), [BIRD] = SH_LIFE(DEAD)};
static const struct sh_life LIFE = {"bird", N, NAMES, NEXT};

/* What sh_life_step() gives; -1: it ends the process. */
static int step(const struct sh_life *l, unsigned from, unsigned to)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

        signal(SIGABRT, SIG_DFL);
        dup2(null, STDERR_FILENO); /* what it logs, thousands of times */
        _exit((int)sh_life_step(l, from, to, 1));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    return -1;
}

static void the_table_is_obeyed(void **state)
{
    (void)state;
    for (unsigned from = 0; from <= N; from++)
        for (unsigned to = 0; to <= N; to++)
            assert_int_equal(sh_life_may(&LIFE, from, to), from < to && to < N && from < N);
    assert_int_equal(sh_life_step(&LIFE, EGG, BIRD, 1), BIRD);
    assert_int_equal(step(&LIFE, DEAD, EGG), -1);
}

static void every_pair_is_taken_or_ends_the_process(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_LIVES; i++)
        for (unsigned from = 0; from <= LIVES[i]->n; from++)
            for (unsigned to = 0; to <= LIVES[i]->n; to++)
                assert_int_equal(step(LIVES[i], from, to),
                                 sh_life_may(LIVES[i], from, to) ? (int)to : -1);
}

static void every_state_has_a_name_and_leads_to_others(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_LIVES; i++) {
        const struct sh_life *l = LIVES[i];

        assert_true(l->n > 1 && l->n < 32);
        for (unsigned s = 0; s < l->n; s++) {
            assert_true(l->names[s] && l->names[s][0]);
            assert_int_equal(l->next[s] & (SH_LIFE(s) | ~(SH_LIFE(l->n) - 1)), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_obeyed),
        cmocka_unit_test(every_pair_is_taken_or_ends_the_process),
        cmocka_unit_test(every_state_has_a_name_and_leads_to_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
