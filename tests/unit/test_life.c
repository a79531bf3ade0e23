/* test_life.c - a step that a table of states does not have ends the process. */
#include "common/life.h"
#include "tests/unit/sh_test.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EGG, BIRD, DEAD, N };
static const char *const NAMES[N] = {"egg", "bird", "dead"};
static const unsigned NEXT[N] = {[EGG] = SH_LIFE(BIRD) | SH_LIFE(DEAD), [BIRD] = SH_LIFE(DEAD)};
static const struct sh_life LIFE = {"bird", N, NAMES, NEXT};

static void the_table_is_obeyed(void **state)
{
    (void)state;
    for (unsigned from = 0; from <= N; from++)
        for (unsigned to = 0; to <= N; to++)
            assert_int_equal(sh_life_may(&LIFE, from, to), from < to && to < N && from < N);
    assert_int_equal(sh_life_step(&LIFE, EGG, BIRD, 1), BIRD);
}

static void what_it_does_not_have_ends_the_process(void **state)
{
    int status = 0;
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        sh_life_step(&LIFE, DEAD, EGG, 1);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_obeyed),
        cmocka_unit_test(what_it_does_not_have_ends_the_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
