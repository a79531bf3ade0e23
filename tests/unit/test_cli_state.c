/* test_cli_state.c - Without it: `shunt down` could signal a stranger whose pid was once ours, or
 * --purge could remove a folder that no system made. */
/* uses: libcli.a */
/* link: -lcurl -lpq -lturbojpeg -lpng16 -lz */
#include "cli/files/file.h"
#include "cli/local/state.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct fixture {
    char dir[SH_TEST_DIR_BYTES];
    struct state s;
};

static int setup(void **state)
{
    static struct fixture f;

    f = (struct fixture){.dir = ""};
    sh_test_dir_make(f.dir);
    *state = &f;
    return state_open(f.dir, true, &f.s, NULL);
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    file_remove_tree(f->s.aux, NULL); /* what a test that failed has left */
    state_close(&f->s);
    return file_remove_tree(f->dir, NULL);
}

static pid_t child(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        pause();
        _exit(0);
    }
    return pid;
}

/* A process that holds the lock of a backup, and one that it has started, such as pg_dump before it
 * is that program. *started: OWNED, to be killed. */
static pid_t backup_at_work(const struct state *s, pid_t *started)
{
    int end[2], lock;
    pid_t pid;

    assert_int_equal(pipe(end), 0);
    pid = fork();
    if (pid == 0) {
        if (state_lock_backup(s, &lock, NULL) != SH_OK)
            _exit(1);
        *started = child();
        if (write(end[1], started, sizeof(*started)) != sizeof(*started))
            _exit(1);
        pause();
        _exit(0);
    }
    close(end[1]);
    assert_int_equal(read(end[0], started, sizeof(*started)), sizeof(*started));
    close(end[0]);
    return pid;
}

/* Else the next one is refused as long as the first has left something of itself behind. */
static void a_backup_that_was_killed_does_not_keep_the_lock(void **state)
{
    struct fixture *f = *state;
    struct sh_err err = {0};
    pid_t started, pid = backup_at_work(&f->s, &started);
    int lock, rc;

    assert_fails(state_lock_backup(&f->s, &lock, &err), SH_E_CONFLICT, &err, "is at work");
    assert_int_equal(lock, -1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    err = (struct sh_err){0};
    rc = state_lock_backup(&f->s, &lock, &err);
    assert_int_equal(kill(started, SIGKILL), 0); /* it was there until now */
    assert_ok_err(rc, &err);
    close(lock);
}

static void a_live_process_is_found_by_its_pid_file(void **state)
{
    struct fixture *f = *state;

    assert_ok(state_pid_write(&f->s, "api", getpid(), NULL));
    assert_int_equal(state_pid(&f->s, "api"), getpid());
    assert_true(state_is_running(&f->s, "api", getpid()));
    state_pid_remove(&f->s, "api");
    assert_int_equal(state_pid(&f->s, "api"), 0);
}

static void a_process_that_has_ended_is_not_found_even_before_it_is_collected(void **state)
{
    struct fixture *f = *state;
    siginfo_t si;
    pid_t pid = child();

    assert_ok(state_pid_write(&f->s, "api", pid, NULL));
    assert_int_equal(state_pid(&f->s, "api"), pid);
    kill(pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT), 0); /* a zombie now */
    assert_int_equal(state_pid(&f->s, "api"), 0);
    waitpid(pid, NULL, 0);
    assert_int_equal(state_pid(&f->s, "api"), 0);
}

static void the_same_pid_with_another_start_time_is_a_stranger(void **state)
{
    struct fixture *f = *state;
    char *path = NULL, text[64];

    assert_ok(sh_asprintf(NULL, &path, "%s/api.pid", f->s.run));
    snprintf(text, sizeof(text), "%d 12345\n", (int)getpid());
    assert_ok(file_write(path, text, strlen(text), 0644, NULL));
    assert_int_equal(state_pid(&f->s, "api"), 0);
    assert_ok(file_write(path, "nonsense", 8, 0644, NULL));
    assert_int_equal(state_pid(&f->s, "api"), 0);
    free(path);
}

static void purge_removes_what_is_ours_and_nothing_else(void **state)
{
    struct fixture *f = *state;
    char *ours = NULL, *theirs = NULL, *link = NULL, *target = NULL, *left = NULL;

    assert_ok(state_path(&f->s, "blobs/packages/x/y", &ours, NULL));
    assert_ok(state_path(&f->s, "notes.txt", &theirs, NULL));
    assert_ok(state_path(&f->s, "jobs", &link, NULL));
    assert_ok(sh_asprintf(NULL, &target, "%s-target", f->s.dir));
    assert_ok(file_make_dir(ours, 0755, NULL));
    assert_ok(file_make_dir(target, 0755, NULL));
    assert_int_equal(symlink(target, link), 0); /* must not be followed */
    assert_ok(file_write(theirs, "mine", 4, 0644, NULL));
    assert_ok(state_purge(&f->s, &left, NULL));
    assert_int_not_equal(access(ours, F_OK), 0);
    assert_int_equal(access(theirs, F_OK), 0);
    assert_int_equal(access(target, F_OK), 0);
    assert_int_equal(rmdir(target), 0);
    free(ours);
    free(theirs);
    free(link);
    free(target);
}

static void purge_refuses_a_folder_that_no_system_made(void **state)
{
    struct fixture *f = *state;
    struct sh_err err = {0};
    struct state s;
    char *other = NULL, *log = NULL, *left = NULL;

    assert_ok(sh_asprintf(NULL, &other, "%s/other", f->dir));
    assert_ok(sh_asprintf(NULL, &log, "%s/log", other));
    assert_ok(file_make_dir(log, 0755, NULL));
    assert_ok(state_open(other, false, &s, NULL));
    assert_fails(state_purge(&s, &left, &err), SH_E_CONFLICT, &err, "nothing is removed");
    assert_int_equal(access(log, F_OK), 0);
    state_close(&s);
    free(other);
    free(log);
}

static void sockets_go_to_a_short_folder_when_the_path_is_long(void **state)
{
    struct fixture *f = *state;
    char deep[200], *dir = NULL;
    struct state s;

    assert_string_equal(f->s.sock, f->s.run);
    memset(deep, 'd', 100);
    deep[100] = '\0';
    assert_ok(sh_asprintf(NULL, &dir, "%s/%s", f->dir, deep));
    assert_ok(state_open(dir, true, &s, NULL));
    assert_int_equal(strncmp(s.sock, "/var/tmp/shunt-", 15), 0);
    assert_true(strlen(s.sock) < 60);
    state_close(&s);
    free(dir);
}

static void a_folder_with_things_of_somebody_else_is_not_taken(void **state)
{
    struct fixture *f = *state;
    struct sh_err err = {0};
    struct state s;
    char *other = NULL, *log = NULL, *mark = NULL;

    assert_ok(sh_asprintf(NULL, &other, "%s/other", f->dir));
    assert_ok(sh_asprintf(NULL, &log, "%s/log", other));
    assert_ok(sh_asprintf(NULL, &mark, "%s/created-by-shunt", other));
    assert_ok(file_make_dir(log, 0755, NULL));
    assert_fails(state_open(other, true, &s, &err), SH_E_CONFLICT, &err, "--state-dir");
    assert_int_not_equal(access(mark, F_OK), 0);
    assert_int_equal(rmdir(log), 0); /* empty now */
    assert_ok(state_open(other, true, &s, NULL));
    state_close(&s);
    assert_ok(state_open(other, true, &s, NULL)); /* not empty, but ours */
    state_close(&s);
    free(other);
    free(log);
    free(mark);
}

static bool is_there(const struct state *s, const char *name)
{
    char *path = NULL;
    bool there;

    assert_ok(sh_asprintf(NULL, &path, "%s/%s", s->run, name));
    there = access(path, F_OK) == 0;
    free(path);
    return there;
}

static void clearing_run_removes_only_files_that_a_system_makes(void **state)
{
    static const char *const OURS[] = {"api.pid", "executor-cpu0.sock", "system.json",
                                       "postgres.pid.77.tmp"};
    static const char *const THEIRS[] = {"notes.txt", "vim.pid", "up.lock", "api.conf",
                                         "systemd.json"};
    struct fixture *f = *state;
    char *path = NULL;

    for (size_t i = 0; i < SH_ARRAY_LEN(OURS) + SH_ARRAY_LEN(THEIRS); i++) {
        size_t k = i - SH_MIN(i, SH_ARRAY_LEN(OURS));

        assert_ok(sh_asprintf(NULL, &path, "%s/%s", f->s.run,
                              i < SH_ARRAY_LEN(OURS) ? OURS[i] : THEIRS[k]));
        assert_ok(file_write(path, "x", 1, 0644, NULL));
        free(path);
    }
    assert_ok(state_clear_run(&f->s, NULL));
    for (size_t i = 0; i < SH_ARRAY_LEN(OURS); i++)
        assert_false(is_there(&f->s, OURS[i]));
    for (size_t i = 0; i < SH_ARRAY_LEN(THEIRS); i++)
        assert_true(is_there(&f->s, THEIRS[i]));
}

static void the_folder_in_var_tmp_is_used_only_while_it_is_ours_alone(void **state)
{
    struct fixture *f = *state;
    struct sh_err err = {0};
    struct state *s = &f->s;
    char *left = NULL;

    assert_int_equal(state_check_aux(s, NULL), SH_E_NOTFOUND);
    assert_int_equal(symlink(f->dir, s->aux), 0);
    assert_fails(state_make_aux(s, &err), SH_E_CONFLICT, &err, "not used");
    free(s->sock);
    assert_ok(sh_asprintf(NULL, &s->sock, "%s/run", s->aux)); /* through the link: our own run/ */
    assert_ok(state_pid_write(s, "api", getpid(), NULL));
    err = (struct sh_err){0};
    assert_fails(state_make_sock(s, &err), SH_E_CONFLICT, &err, "not used");
    err = (struct sh_err){0};
    assert_fails(state_purge(s, &left, &err), SH_E_CONFLICT, &err, "not used");
    assert_true(is_there(s, "api.pid"));
    assert_int_equal(unlink(s->aux), 0);
    assert_ok(state_make_sock(s, NULL));
    assert_int_equal(chmod(s->aux, 0777), 0);
    assert_int_equal(state_check_aux(s, NULL), SH_E_CONFLICT);
    assert_int_equal(chmod(s->aux, 0711), 0);
    assert_ok(state_clear_run(s, NULL));
    assert_int_equal(state_check_aux(s, NULL), SH_E_NOTFOUND);
}

static void the_server_of_a_system_is_read_from_its_folder(void **state)
{
    struct fixture *f = *state;
    json_t *system = json_pack("{s:s}", "server", "http://127.0.0.1:1234");
    char *url = NULL;

    assert_ok(state_server(f->dir, &url, NULL));
    assert_null(url);
    assert_ok(state_write_system(&f->s, system, NULL));
    assert_ok(state_server(f->dir, &url, NULL));
    assert_string_equal(url, "http://127.0.0.1:1234");
    free(url);
    json_decref(system);
    assert_ok(state_server("/nowhere/at/all", &url, NULL));
    assert_null(url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_backup_that_was_killed_does_not_keep_the_lock, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_live_process_is_found_by_its_pid_file, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_process_that_has_ended_is_not_found_even_before_it_is_collected, setup, teardown),
        cmocka_unit_test_setup_teardown(the_same_pid_with_another_start_time_is_a_stranger, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(purge_removes_what_is_ours_and_nothing_else, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(purge_refuses_a_folder_that_no_system_made, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(sockets_go_to_a_short_folder_when_the_path_is_long, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_folder_with_things_of_somebody_else_is_not_taken, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(clearing_run_removes_only_files_that_a_system_makes, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_folder_in_var_tmp_is_used_only_while_it_is_ours_alone,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(the_server_of_a_system_is_read_from_its_folder, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
