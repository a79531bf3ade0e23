/* test_backup_set.c - what a backup links while a transaction keeps the snapshot. Without it, the
 * database could end the session of a backup that links, or copies from another disk, for longer
 * than a session may stand idle; or files of a job could be left out for a link beside them.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: libcli.a */
/* link: -lcurl -lpq -lturbojpeg -lpng16 -lz -Wl,--wrap=link -Wl,--wrap=remove */
#include "cli/files/file.h"
#include "cli/local/backup_set.h"
#include "cli/local/state.h"
#include "tests/db/lease_world.h"

#include <time.h>
#include <unistd.h>

#define N_FILES 40

static const struct timespec *slow; /* how long the disk takes for a name; NULL: no time */

int __real_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);

int __wrap_link(const char *from, const char *to)
{
    if (slow)
        nanosleep(slow, NULL);
    return __real_link(from, to);
}

int __real_remove(const char *path);
int __wrap_remove(const char *path);

int __wrap_remove(const char *path)
{
    if (slow)
        nanosleep(slow, NULL);
    return __real_remove(path);
}

struct folder {
    struct db *db;
    char dir[32];
    struct state s;
    struct backup_set set;
};

static void make(const struct folder *f, const char *below, bool is_folder)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", f->dir, below);
    if (is_folder)
        assert_ok(file_make_dir(path, 0700, NULL));
    else
        assert_ok(file_write(path, "x", 1, 0600, NULL));
}

static int set_up(void **state)
{
    struct folder *f = calloc(1, sizeof(*f));
    char name[32];

    assert_non_null(f);
    f->db = open_db("backup");
    make_empty(f->db);
    migrate(f->db);
    fill_job(f->db);
    run(f->db, "UPDATE model_version SET state = 'DELETED'");
    run(f->db, "UPDATE dataset SET state = 'DELETED'");
    run(f->db, "UPDATE job SET state = 'CANCELLED', finished_at = now()"); /* it needs no files */
    sh_strlcpy(f->dir, "/tmp/shunt-set.XXXXXX", sizeof(f->dir));
    assert_non_null(mkdtemp(f->dir));
    f->s.dir = f->dir;
    f->set.s = &f->s;
    assert_ok(state_path(&f->s, "backup.tmp", &f->set.dir, NULL));
    make(f, "jobs", true);
    make(f, "jobs/1", true);
    for (int i = 0; i < N_FILES; i++) {
        snprintf(name, sizeof(name), "jobs/1/file-%d", i);
        make(f, name, false);
    }
    *state = f;
    return 0;
}

static int tear_down_folder(void **state)
{
    struct folder *f = *state;

    slow = NULL;
    file_remove_tree(f->dir, NULL);
    free(f->set.dir);
    db_free(f->db);
    free(f);
    return 0;
}

static int take(struct db *db, const void *arg, struct sh_err *err)
{
    struct folder *f = *(struct folder *const *)arg;

    return backup_link(&f->set, db, true, err);
}

static void a_session_may_stand_idle_while_files_are_linked(void **state)
{
    static const struct timespec TENTH = {.tv_nsec = 100000000};
    struct folder *f = *state;
    struct sh_err err = {0};

    run(f->db, "SET idle_in_transaction_session_timeout = 50");
    slow = &TENTH;
    assert_ok_err(db_tx(f->db, "backup", take, &f, &err), &err);
    assert_int_equal(f->set.files, N_FILES);
}

static void or_what_a_killed_backup_has_left_is_removed(void **state)
{
    static const struct timespec TENTH = {.tv_nsec = 100000000};
    struct folder *f = *state;
    struct sh_err err = {0};

    make(f, "backup.tmp", true);
    make(f, "backup.tmp/database.dump", false);
    run(f->db, "SET idle_in_transaction_session_timeout = 50");
    slow = &TENTH;
    assert_ok_err(db_tx(f->db, "backup", take, &f, &err), &err);
    assert_int_equal(f->set.files, N_FILES);
}

static void a_link_that_leads_nowhere_keeps_no_file_out(void **state)
{
    struct folder *f = *state;
    char path[128];

    snprintf(path, sizeof(path), "%s/jobs/1/trained.onnx", f->dir);
    assert_int_equal(symlink("/nonexistent/model.onnx", path), 0);
    assert_ok(db_tx(f->db, "backup", take, &f, NULL));
    assert_int_equal(f->set.files, N_FILES);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_session_may_stand_idle_while_files_are_linked),
        TEST(or_what_a_killed_backup_has_left_is_removed),
        TEST(a_link_that_leads_nowhere_keeps_no_file_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
