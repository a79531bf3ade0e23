/* test_transfer.c - files on their way between an executor and an API on another host.
 *
 * Without it a broken connection could cost a large dataset its first half each time, a file that
 * changed meanwhile could be glued together from two, a damaged one could get its name, a server
 * that says nothing could hold a job for ever, and a job that is lost could go on sending.
 */
/* uses: executor/files/transfer.o executor/files/push.o executor/files/folder.o */
/* uses: executor/files/result_file.o executor/files/claim.o */
/* link: -lmicrohttpd -lcurl -Wl,--wrap=sh_http_call */
#include "common/http.h"
#include "executor/files/push.h"
#include "tests/unit/transfer_world.h"

#include <sys/time.h>

#define BYTES 200000

int __real_sh_http_call(struct sh_http *h, const struct sh_http_req *req, struct sh_http_reply *out,
                        struct sh_err *err);
int __wrap_sh_http_call(struct sh_http *h, const struct sh_http_req *req, struct sh_http_reply *out,
                        struct sh_err *err);

/* A server that stands still is left after 20 s; here after one. */
int __wrap_sh_http_call(struct sh_http *h, const struct sh_http_req *req, struct sh_http_reply *out,
                        struct sh_err *err)
{
    struct sh_http_req q = *req;

    q.timeout_ms = req->timeout_ms == 20000 ? 900 : 0;
    return __real_sh_http_call(h, &q, out, err);
}

static char data[BYTES], other[BYTES];

static int set_up(void **state)
{
    static struct world w;

    for (size_t i = 0; i < BYTES; i++) {
        data[i] = (char)(i * 31 + i / 257);
        other[i] = (char)(i * 17 + 5);
    }
    world_start(&w);
    *state = &w;
    return 0;
}

static int tear_down(void **state)
{
    world_stop(*state);
    return 0;
}

/* ------------------------------------------------------------------ one transfer */

struct transfer {
    struct transfer_task task; /* first member */
    const char *path, *digest;
    char from[128], part[128], to[128];
    bool is_done;
};

static int work_get(struct transfer_task *t, struct transfer_line *l, struct sh_err *err)
{
    struct transfer *f = (struct transfer *)t;

    return transfer_get(l, f->path, f->digest, f->part, f->to, err);
}

static int work_put(struct transfer_task *t, struct transfer_line *l, struct sh_err *err)
{
    struct transfer *f = (struct transfer *)t;

    return transfer_put(l, f->path, f->from, err);
}

static void on_done(struct transfer_task *t)
{
    ((struct transfer *)t)->is_done = true;
}

static void begin(struct world *w, struct transfer *f, transfer_work_fn *work)
{
    f->task.work = work;
    f->task.done = on_done;
    snprintf(f->from, sizeof(f->from), "%s/from", w->dir);
    snprintf(f->part, sizeof(f->part), "%s/blobs/tmp/x.part", w->dir);
    snprintf(f->to, sizeof(f->to), "%s/blobs/x", w->dir);
    transfer_submit(w->here.transfers, work == work_get ? TRANSFER_IN : TRANSFER_OUT, &f->task);
}

/* Turns of the loop until *flag, at most 20 s. */
static void wait_for(struct world *w, const bool *flag)
{
    int64_t end = sh_clock_ns() + INT64_C(120000000000);

    while (!*flag && sh_clock_ns() < end)
        assert_ok(sh_loop_once(w->loop, 20000000, NULL));
    assert_true(*flag);
}

static void carry(struct world *w, struct transfer *f, transfer_work_fn *work)
{
    begin(w, f, work);
    wait_for(w, &f->is_done);
}

static void assert_came(const struct transfer *f, const char *want)
{
    size_t n = 0;
    char *got;

    assert_ok_err(f->task.err.rc, &f->task.err);
    got = sh_test_read_file(f->to, &n);
    assert_int_equal(n, BYTES);
    assert_memory_equal(got, want, BYTES);
    free(got);
    assert_int_equal(access(f->part, F_OK), -1);
}

static void assert_nothing_came(const struct transfer *f, int rc, const char *why)
{
    assert_fails(f->task.err.rc, rc, &f->task.err, why);
    assert_int_equal(access(f->part, F_OK), -1);
    assert_int_equal(access(f->to, F_OK), -1);
}

/* ------------------------------------------------------------------ what comes */

static void what_broke_goes_on_where_it_broke(void **state)
{
    struct world *w = *state;
    struct transfer f = {.path = "/api/v1/blobs/x"};
    const struct world_file *file;
    char want[512];

    file = world_add(w, "/x", data, BYTES);
    w->n_cuts = 2;
    w->cut_at = 70000;
    carry(w, &f, work_get);
    assert_came(&f, data);
    snprintf(want, sizeof(want),
             "GET /api/v1/blobs/x - -\nGET /api/v1/blobs/x bytes=70000- %s\n"
             "GET /api/v1/blobs/x bytes=140000- %s\n",
             file->etag, file->etag);
    assert_string_equal(w->log, want);
}

static void a_file_that_changed_meanwhile_comes_whole(void **state)
{
    struct world *w = *state;
    struct transfer f = {.path = "/api/v1/jobs/1/files/losses.json"};
    struct world_file changed;

    world_add(w, "losses.json", data, BYTES);
    world_file(&changed, "losses.json", other, BYTES);
    w->n_cuts = 1;
    w->cut_at = 100000;
    w->after_cut = &changed;
    carry(w, &f, work_get); /* no digest: its ETag counts, that of the last answer */
    assert_came(&f, other);
}

static void a_damaged_file_is_fetched_anew_and_never_gets_its_name(void **state)
{
    struct world *w = *state;
    struct transfer f = {.path = "/x"}, never = {.path = "/x"};
    const char *at;
    int n = 0;

    f.digest = never.digest = world_add(w, NULL, data, BYTES)->name;
    w->files[0].name = "/x";
    w->n_damaged = 1;
    carry(w, &f, work_get);
    assert_came(&f, data);
    unlink(f.to);
    w->log[0] = '\0';
    w->n_damaged = 100;
    carry(w, &never, work_get);
    assert_nothing_came(&never, SH_E_IO, "came damaged: its SHA-256 is wrong");
    for (at = w->log; (at = strstr(at, "GET /x - -")); at++) /* each time from the first byte */
        n++;
    assert_int_equal(n, 3);
}

static void a_server_that_stands_still_is_given_up(void **state)
{
    struct world *w = *state;
    struct transfer f = {.path = "/x"};
    int64_t begin_ns = sh_clock_ns();

    world_add(w, "/x", data, BYTES);
    atomic_store(&w->stalls, true);
    carry(w, &f, work_get);
    assert_nothing_came(&f, SH_E_TIMEOUT, "did not answer in time");
    assert_true(sh_clock_ns() - begin_ns >= 1000000000);     /* --api-retry-s */
    assert_non_null(strstr(strchr(w->log, '\n'), "GET /x")); /* and it was asked again */
}

static void what_is_stopped_ends_at_once(void **state)
{
    struct world *w = *state;
    struct transfer f = {.path = "/x"};

    world_begin_transfers(w, 3600);
    w->n_refused = 1000000;
    w->status = 503;
    begin(w, &f, work_get);
    for (int i = 0; i < 20; i++)
        assert_ok(sh_loop_once(w->loop, 10000000, NULL));
    assert_false(f.is_done);
    atomic_store(&f.task.stop, true);
    wait_for(w, &f.is_done);
    assert_nothing_came(&f, SH_E_CANCELLED, "stopped");
}

/* ------------------------------------------------------------------ what goes */

static void what_goes_begins_anew_and_carries_its_digest(void **state)
{
    struct world *w = *state;
    struct transfer f = {.path = "/api/v1/jobs/1/files/losses.json"};
    uint8_t sha[SH_SHA256_BYTES];
    char digest[128], want[512];

    begin(w, &f, work_put); /* the file is not there */
    wait_for(w, &f.is_done);
    assert_fails(f.task.err.rc, SH_E_IO, &f.task.err, "could not open");
    sh_test_write_file(f.from, data, 50000);
    assert_ok(sh_sha256(data, 50000, sha, NULL));
    sh_http_digest_header(sha, digest, sizeof(digest));
    w->n_refused = 1;
    w->status = 503;
    w->problem = "{\"code\":\"UNAVAILABLE\",\"error\":\"in a moment\"}";
    f = (struct transfer){.path = f.path};
    carry(w, &f, work_put);
    assert_ok_err(f.task.err.rc, &f.task.err);
    snprintf(want, sizeof(want), "PUT %s %s\nPUT %s %s\n", f.path, strchr(digest, ' ') + 1, f.path,
             strchr(digest, ' ') + 1);
    assert_string_equal(w->log, want);
    assert_int_equal(w->n_put, 50000);
    assert_memory_equal(w->put, data, 50000);
}

struct told {
    int n, rc;
    char msg[512];
    bool is_done;
};

static void on_pushed(void *arg, const struct sh_err *why)
{
    struct told *t = arg;

    t->n++;
    t->rc = why->rc;
    snprintf(t->msg, sizeof(t->msg), "%s", why->msg);
    t->is_done = true;
}

static struct push_conf two_files(struct world *w, char *dir, size_t size)
{
    char path[256];

    snprintf(dir, size, "%s/jobs/7", w->dir);
    assert_int_equal(mkdir(dir, 0750), 0);
    snprintf(path, sizeof(path), "%s/losses.json", dir);
    sh_test_write_file(path, "[1]\n", 4);
    snprintf(path, sizeof(path), "%s/trained.onnx", dir);
    sh_test_write_file(path, "onnx", 4);
    return (struct push_conf){.job = 7,
                              .attempt = 3,
                              .dir = dir,
                              .files = {"losses.json", "trained.onnx"},
                              .publish = "trained.onnx"};
}

static void a_job_sends_its_files_in_order_and_says_whose_they_are(void **state)
{
    struct world *w = *state;
    struct told t = {0};
    struct push_conf c;
    struct push *p;
    char dir[128], *second;

    c = two_files(w, dir, sizeof(dir));
    assert_ok(push_start(&w->here, &c, on_pushed, &t, &p, NULL));
    wait_for(w, &t.is_done);
    assert_int_equal(t.rc, SH_OK);
    second = strchr(w->log, '\n') + 1;
    assert_has(w->log, "PUT /api/v1/jobs/7/files/losses.json attempt=3 executor=gpu 0 sha-256=:");
    assert_has(second,
               "PUT /api/v1/jobs/7/files/trained.onnx attempt=3 publish=true executor=gpu 0 ");
}

static void a_lost_job_is_told_so_at_once_and_sends_nothing_more(void **state)
{
    struct world *w = *state;
    struct told t = {0};
    struct push_conf c;
    struct push *p;
    char dir[128];

    world_begin_transfers(w, 3600);
    c = two_files(w, dir, sizeof(dir));
    w->n_refused = 10;
    w->status = 409;
    w->problem = "{\"code\":\"CONFLICT\",\"error\":\"the job is not yours\"}";
    assert_ok(push_start(&w->here, &c, on_pushed, &t, &p, NULL));
    wait_for(w, &t.is_done);
    assert_int_equal(t.rc, SH_E_CONFLICT);
    assert_string_equal(t.msg, "the API answered 409: the job is not yours");
    assert_int_equal(w->n_refused, 9);
}

static void who_cancelled_is_not_told(void **state)
{
    struct world *w = *state;
    struct told t = {0}, next = {0};
    struct push_conf c;
    struct push *p;
    char dir[128];

    c = two_files(w, dir, sizeof(dir));
    assert_ok(push_start(&w->here, &c, on_pushed, &t, &p, NULL));
    push_cancel(p);
    assert_ok(
        push_start(&w->here, &c, on_pushed, &next, &p, NULL)); /* behind it on the one thread */
    wait_for(w, &next.is_done);
    assert_int_equal(next.rc, SH_OK);
    assert_int_equal(t.n, 0);
}

/* ------------------------------------------------------------------ folders */

static void the_folder_of_a_job_goes_and_its_name_is_free_at_once(void **state)
{
    struct world *w = *state;
    struct told t = {0};
    struct push_conf c;
    struct push *p;
    char dir[128];

    c = two_files(w, dir, sizeof(dir));
    push_forget_job(&w->here, dir);
    assert_false(world_has(w, "jobs/7"));
    c = two_files(w, dir, sizeof(dir)); /* it came back */
    assert_ok(push_start(&w->here, &c, on_pushed, &t, &p, NULL));
    wait_for(w, &t.is_done);
    assert_int_equal(t.rc, SH_OK);
    snprintf(dir, sizeof(dir), "%s/jobs", w->dir);
    assert_int_equal(sh_test_dir_walk(dir, false), 1);
}

static void what_was_kept_of_a_job_goes_when_it_has_ended_for_good(void **state)
{
    struct world *w = *state;

    world_make_dir(w, "jobs/7");
    world_make_dir(w, "jobs/70");
    push_forget_ended(&w->here, 0);
    push_forget_ended(&w->here, 8); /* there is none */
    assert_true(world_has(w, "jobs/7"));
    push_forget_ended(&w->here, 7);
    assert_false(world_has(w, "jobs/7"));
    assert_true(world_has(w, "jobs/70"));
}

static void a_start_keeps_young_results_and_no_other_folder(void **state)
{
    struct world *w = *state;
    const struct timeval old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    char path[256];

    world_make_dir(w, "jobs/1");
    world_make_dir(w, "jobs/2");
    world_make_dir(w, "jobs/3");
    world_make_dir(w, "jobs/4");
    world_make_dir(w, "jobs/.gone-4");
    world_make_dir(w, "jobs/mine");
    snprintf(path, sizeof(path), "%s/jobs/1/result-a.part", w->dir);
    sh_test_write_file(path, "x", 1);
    snprintf(path, sizeof(path), "%s/jobs/2/result-b.part", w->dir);
    sh_test_write_file(path, "x", 1);
    assert_int_equal(utimes(path, old), 0);
    snprintf(path, sizeof(path), "%s/jobs/3/ckpt-5.safetensors", w->dir);
    sh_test_write_file(path, "x", 1);
    snprintf(path, sizeof(path), "%s/jobs/4/result.safetensors", w->dir);
    sh_test_write_file(path, "x", 1);
    push_sweep_jobs(&w->here);
    assert_true(world_has(w, "jobs/1/result-a.part"));
    assert_false(world_has(w, "jobs/2"));
    assert_false(world_has(w, "jobs/3"));
    assert_true(world_has(w, "jobs/4/result.safetensors")); /* whole, and not sent yet */
    assert_false(world_has(w, "jobs/.gone-4"));
    assert_true(world_has(w, "jobs/mine")); /* no job's */
}

/* As young as it has to be, until it is looked at on a later day. */
static void only_old_results_go_while_it_runs(void **state)
{
    struct world *w = *state;
    const struct timeval old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    static const struct {
        const char *dir, *file;
        bool is_old, stays;
    } CASES[] = {{"jobs/1", "result-1.part", false, true},
                 {"jobs/2", "result-1.part", true, false},
                 {"jobs/3", "result.safetensors", true, false},
                 {"jobs/4", "ckpt-5.safetensors", true, true}, /* a job that trains here */
                 {"jobs/mine", "result.safetensors", true, true}};
    struct files shared = w->here;
    char path[256];

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        world_make_dir(w, CASES[i].dir);
        snprintf(path, sizeof(path), "%s/%s/%s", w->dir, CASES[i].dir, CASES[i].file);
        sh_test_write_file(path, "x", 1);
        assert_true(!CASES[i].is_old || utimes(path, old) == 0);
    }
    shared.transfers = NULL;
    push_sweep_results(&shared); /* the API's: it knows what is to stay */
    assert_true(world_has(w, "jobs/2"));
    push_sweep_results(&w->here);
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++)
        assert_int_equal(world_has(w, CASES[i].dir), CASES[i].stays);
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(what_broke_goes_on_where_it_broke),
        WORLD_TEST(a_file_that_changed_meanwhile_comes_whole),
        WORLD_TEST(a_damaged_file_is_fetched_anew_and_never_gets_its_name),
        WORLD_TEST(a_server_that_stands_still_is_given_up),
        WORLD_TEST(what_is_stopped_ends_at_once),
        WORLD_TEST(what_goes_begins_anew_and_carries_its_digest),
        WORLD_TEST(a_job_sends_its_files_in_order_and_says_whose_they_are),
        WORLD_TEST(a_lost_job_is_told_so_at_once_and_sends_nothing_more),
        WORLD_TEST(who_cancelled_is_not_told),
        WORLD_TEST(the_folder_of_a_job_goes_and_its_name_is_free_at_once),
        WORLD_TEST(what_was_kept_of_a_job_goes_when_it_has_ended_for_good),
        WORLD_TEST(a_start_keeps_young_results_and_no_other_folder),
        WORLD_TEST(only_old_results_go_while_it_runs),
    };

    return cmocka_run_group_tests_name("transfer", tests, NULL, NULL);
}
