/* test_finish.c - what follows the last step of a job, with each of its steps going wrong. Without
 * it: a job could end as done without its model, fail without a word, or leave folders behind. */
/* uses: executor/training/finish.o executor/training/job_state.o executor/files/folder.o executor/files/files.o executor/files/claim.o */
/* link: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=kill,--wrap=waitpid */
/* link: -Wl,--wrap=sh_spawn,--wrap=sh_loop_child,--wrap=sh_timer_add,--wrap=sh_timer_del */
/* link: -Wl,--wrap=mkdir,--wrap=rename,--wrap=link,--wrap=utimensat,--wrap=memfd_create */
#include "common/clock.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/spawn.h"
#include "executor/files/disk.h"
#include "executor/files/push.h"
#include "executor/training/eval.h"
#include "executor/training/train_int.h"
#include "tests/unit/oom.h"
#include "tests/unit/sh_test.h"

#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define DIGEST "00000000000000000000000000000000000000000000000000000000000000dd"
#define PID 4242
#define REFUSAL "{\"ok\":false,\"code\":\"INVALID\",\"message\":\"no\"}"
#define REPLY_META                                                                       \
    "{\"ok\":true,\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,2]}]," \
    "\"outputs\":[]}"

/* What the rest of the executor does, and what of it goes wrong: `fails` names a call, and the
 * first `spared` of them succeed. */
static struct {
    char dir[SH_TEST_DIR_BYTES], job_dir[SH_TEST_DIR_BYTES + 8];
    struct files files;
    struct train_env env;
    struct job j;
    struct sh_st_tensor tensors[3];
    struct model model;
    const char *fails;
    int spared, native;

    struct disk_task *task;
    int child_out; /* its standard output; -1: there is none */
    sh_child_fn *child_fn;
    void *child_arg;
    bool exports;
    sh_timer_fn *poll;
    void *poll_arg;
    eval_done_fn *eval_fn;
    push_done_fn *push_fn;
    void *eval_arg, *push_arg;
    struct push_conf push;
    const void *final[3]; /* data of the tensors in final.safetensors */
    size_t n_final;
    int n_ends, n_kills, n_unloads;
    struct sh_err why;
} R;

static bool is_failing(const char *call)
{
    if (!R.fails || strcmp(R.fails, call) != 0 || R.spared-- > 0)
        return false;
    errno = R.native ? R.native : EIO;
    return true;
}

/* ------------------------------------------------------------------ the system */

int __real_mkdir(const char *path, mode_t mode);
int __real_rename(const char *from, const char *to);
int __real_link(const char *from, const char *to);
int __real_utimensat(int at, const char *path, const struct timespec t[2], int flags);
int __real_memfd_create(const char *name, unsigned flags);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_rename(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __wrap_utimensat(int at, const char *path, const struct timespec t[2], int flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_kill(pid_t pid, int sig);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);
int __wrap_sh_spawn(const struct sh_spawn *s, pid_t *pid, struct sh_err *err);
int __wrap_sh_loop_child(struct sh_loop *l, pid_t pid, sh_child_fn *fn, void *arg,
                         struct sh_err *err);
int __wrap_sh_timer_add(struct sh_loop *l, int64_t delay_ns, int64_t period_ns, sh_timer_fn *fn,
                        void *arg, struct sh_timer **out, struct sh_err *err);
void __wrap_sh_timer_del(struct sh_timer *t);

int __wrap_mkdir(const char *path, mode_t mode)
{
    return is_failing("mkdir") ? -1 : __real_mkdir(path, mode);
}

int __wrap_rename(const char *from, const char *to)
{
    return is_failing("rename") ? -1 : __real_rename(from, to);
}

int __wrap_link(const char *from, const char *to)
{
    return is_failing("link") ? -1 : __real_link(from, to);
}

int __wrap_utimensat(int at, const char *path, const struct timespec t[2], int flags)
{
    return is_failing("utimensat") ? -1 : __real_utimensat(at, path, t, flags);
}

int __wrap_memfd_create(const char *name, unsigned flags)
{
    return is_failing("memfd_create") ? -1 : __real_memfd_create(name, flags);
}

int __wrap_kill(pid_t pid, int sig)
{
    (void)sig;
    R.n_kills += pid == PID;
    return 0;
}

pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
    (void)status, (void)options;
    return pid;
}

static void write_at(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");

    if (f) {
        fputs(text, f);
        fclose(f);
    }
}

int __wrap_sh_spawn(const struct sh_spawn *s, pid_t *pid, struct sh_err *err)
{
    if (is_failing("sh_spawn"))
        return SH_FAIL(err, SH_E_IO, "could not start it");
    *pid = PID;
    R.child_out = fcntl(s->stdout_fd, F_DUPFD_CLOEXEC, 3);
    R.exports = strcmp(s->argv[1], "export") == 0;
    if (R.exports)
        write_at(s->argv[7], "onnx");
    return SH_OK;
}

int __wrap_sh_loop_child(struct sh_loop *l, pid_t pid, sh_child_fn *fn, void *arg,
                         struct sh_err *err)
{
    (void)l, (void)pid;
    if (is_failing("sh_loop_child"))
        return SH_FAIL(err, SH_E_NOMEM, "could not watch it");
    R.child_fn = fn;
    R.child_arg = arg;
    return SH_OK;
}

int __wrap_sh_timer_add(struct sh_loop *l, int64_t delay_ns, int64_t period_ns, sh_timer_fn *fn,
                        void *arg, struct sh_timer **out, struct sh_err *err)
{
    (void)l, (void)delay_ns, (void)period_ns;
    *out = NULL;
    if (is_failing("sh_timer_add"))
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a timer");
    R.poll = fn;
    R.poll_arg = arg;
    return SH_OK;
}

void __wrap_sh_timer_del(struct sh_timer *t)
{
    (void)t;
    R.poll = NULL;
}

/* ------------------------------------------------------------------ the executor */

char *job_file(const struct job *j, const char *name)
{
    char *path = NULL;

    return sh_asprintf(NULL, &path, "%s/%s", j->dir, name) ? NULL : path;
}

bool job_has_ended(const struct job *j)
{
    (void)j;
    return R.n_ends > 0;
}

struct slot *slots_best(struct job *j)
{
    (void)j;
    return NULL;
}

struct slot *slots_newest(struct job *j)
{
    return &j->slots[0];
}

void job_log_say(struct job_log *l, const char *fmt, ...)
{
    (void)l, (void)fmt;
}

void train__finished(struct job *j, const struct sh_err *why)
{
    (void)j;
    R.why = *why;
    R.n_ends++;
}

int disk_submit(struct disk *d, struct disk_task *t, struct sh_err *err)
{
    (void)d;
    if (is_failing("disk_submit"))
        return SH_FAIL(err, SH_E_QUEUEFULL, "too many files wait");
    R.task = t;
    for (size_t i = 0; t->write_path && i < t->n_tensors; i++)
        R.final[i] = t->tensors[i].data;
    if (t->write_path) {
        R.n_final = t->n_tensors;
        close(open(t->write_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    }
    return SH_OK;
}

int store_load_internal(struct store *s, const struct msg_model_load *m, struct model **out,
                        struct sh_err *err)
{
    (void)s, (void)m;
    if (is_failing("store_load_internal"))
        return SH_FAIL(err, SH_E_TOOBIG, "no room");
    R.model = (struct model){.handle = -1, .phase = MODEL_BUILDING};
    *out = &R.model;
    return SH_OK;
}

void store_unload(struct store *s, int64_t handle)
{
    (void)s;
    R.n_unloads += handle == R.model.handle;
}

int blob_adopt(struct blobs *b, struct blob_set *s, const char *path, struct sh_err *err)
{
    (void)b, (void)s, (void)path;
    return is_failing("blob_adopt") ? SH_FAIL(err, SH_E_DISKFULL, "no room for it") : SH_OK;
}

int eval_start(const struct eval_conf *c, eval_done_fn *fn, void *arg, struct eval **out,
               struct sh_err *err)
{
    (void)c, (void)out;
    if (is_failing("eval_start"))
        return SH_FAIL(err, SH_E_QUEUEFULL, "the thread is busy");
    R.eval_fn = fn;
    R.eval_arg = arg;
    return SH_OK;
}

void eval_free(struct eval *e)
{
    (void)e;
}

int push_start(const struct files *f, const struct push_conf *c, push_done_fn *done, void *arg,
               struct push **out, struct sh_err *err)
{
    (void)f, (void)out;
    if (is_failing("push_start"))
        return SH_FAIL(err, SH_E_NOMEM, "could not send it");
    R.push = *c;
    R.push_fn = done;
    R.push_arg = arg;
    return SH_OK;
}

void push_cancel(struct push *p)
{
    (void)p;
}

/* ------------------------------------------------------------------ the rig */

#define SPEC(loss, more)                                                                          \
    "{\"loss\":" loss ",\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},\"batch\":1,\"steps\":3" more \
    "}"
#define ONE SPEC("\"cross-entropy\"", ",\"labels\":\"label\"")
#define HIDDEN SPEC("\"cross-entropy\"", ",\"labels\":\"label\",\"publish\":false")
#define TWO                                                                 \
    SPEC("[{\"name\":\"cross-entropy\",\"output\":\"y\",\"labels\":\"a\"}," \
         "{\"name\":\"cross-entropy\",\"output\":\"z\",\"labels\":\"b\"}]", \
         "")

static char word[] = "w", mean[] = "w#ema", precision[] = "fp32", dataset[] = "eval";

static void rig_open(const char *spec, bool evaluates, bool is_remote)
{
    static const char *const FOLDERS[] = {"jobs", "blobs", "blobs/packages", "package"};
    static char package[SH_TEST_DIR_BYTES + 16];
    static float state[2] = {1, 2}, kept = 3;
    char path[SH_TEST_DIR_BYTES + 32];

    memset(&R, 0, sizeof(R));
    R.child_out = -1;
    sh_test_dir_make(R.dir);
    for (size_t i = 0; i < SH_ARRAY_LEN(FOLDERS); i++) {
        snprintf(path, sizeof(path), "%s/%s", R.dir, FOLDERS[i]);
        assert_int_equal(__real_mkdir(path, 0700), 0);
    }
    snprintf(R.job_dir, sizeof(R.job_dir), "%s/jobs", R.dir);
    snprintf(package, sizeof(package), "%s/package", R.dir);
    R.files = (struct files){
        .state_dir = R.dir, .executor = word, .transfers = is_remote ? (void *)&R : NULL};
    R.env = (struct train_env){.executor = word, .files = &R.files};
    R.tensors[0] = (struct sh_st_tensor){.name = word};
    R.tensors[1] = (struct sh_st_tensor){.name = mean};
    R.tensors[2] = (struct sh_st_tensor){.name = "frozen"};
    R.j = (struct job){.env = &R.env,
                       .id = 7,
                       .dir = R.job_dir,
                       .package = package,
                       .precision = precision,
                       .tenant = word,
                       .model = word,
                       .eval_dataset = evaluates ? dataset : NULL,
                       .spec = json_loads(spec, 0, NULL),
                       .table = json_loads("[{\"off\":0,\"kind\":\"param\"},"
                                           "{\"off\":4,\"kind\":\"ema\"},"
                                           "{\"off\":8,\"kind\":\"param\"}]",
                                           0, NULL),
                       .tensors = R.tensors,
                       .n_tensors = 3,
                       .state_bytes = 12,
                       .written_bytes = 8,
                       .fixed = {.base = &kept},
                       .slots = {{.mem = {.base = state}}},
                       .end = END_DONE,
                       .last_loss = 0.5,
                       .step = 3};
    assert_true(R.j.spec && R.j.table);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st, (void)type, (void)f;
    return remove(path);
}

/* The task and the child outlive the finish that began them. */
static void rig_close(void)
{
    finish_free(R.j.finish);
    assert_null(R.j.finish);
    if (R.child_fn)
        R.child_fn(NULL, PID, SIGKILL, R.child_arg);
    if (R.child_out >= 0)
        close(R.child_out);
    if (R.task)
        R.task->done(R.task);
    json_decref(R.j.spec);
    json_decref(R.j.table);
    free(R.j.result);
    assert_int_equal(nftw(R.dir, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void end_task(int rc)
{
    struct disk_task *t = R.task;

    R.task = NULL;
    if (rc)
        SH_FAIL(&t->err, rc, "the disk fails");
    snprintf(t->digest, sizeof(t->digest), "%s", DIGEST);
    t->bytes = 4;
    t->done(t);
}

static void end_child(const char *reply, off_t len, int status)
{
    sh_child_fn *fn = R.child_fn;
    char path[SH_TEST_DIR_BYTES + 64];

    R.child_fn = NULL;
    if (pwrite(R.child_out, reply, strlen(reply), 0) < 0 || ftruncate(R.child_out, len) < 0)
        abort();
    close(R.child_out);
    R.child_out = -1;
    snprintf(path, sizeof(path), "%s/blobs/packages/.job-7-w/graph.json", R.dir);
    if (!R.exports)
        write_at(path, "{}");
    fn(NULL, PID, status, R.child_arg);
}

static void child_ends_well(void)
{
    const char *reply = R.exports ? "{\"ok\":true}" : REPLY_META;

    end_child(reply, (off_t)strlen(reply), 0);
}

static void poll(void)
{
    if (R.poll)
        R.poll(NULL, R.poll_arg);
}

static void end_eval(int rc)
{
    struct eval_result r = {
        .all = {
            .loss = 1, .accuracy = 0.5, .top5 = NAN, .f1 = NAN, .perplexity = NAN, .n_samples = 4}};
    struct sh_err why = {0};

    r.heads[0] = r.heads[1] = r.all;
    r.heads[1].accuracy = NAN;
    if (rc)
        SH_FAIL(&why, rc, "the evaluation fails");
    R.eval_fn(R.eval_arg, &r, &why);
}

static void end_push(int rc)
{
    struct sh_err why = {0};

    if (rc)
        SH_FAIL(&why, rc, "the API fails");
    R.push_fn(R.push_arg, &why);
}

/* The next thing that it waits for comes. False: it waits for nothing. */
static bool go_on(void)
{
    if (R.n_ends)
        return false;
    if (R.task)
        end_task(SH_OK);
    else if (R.child_fn)
        child_ends_well();
    else if (R.push_fn)
        end_push(SH_OK);
    else if (R.eval_fn)
        end_eval(SH_OK);
    else if (R.model.phase == MODEL_BUILDING) {
        R.model.phase = MODEL_READY;
        poll();
    } else {
        return false;
    }
    return true;
}

static bool is_there(const char *name)
{
    char path[SH_TEST_DIR_BYTES + 160];

    snprintf(path, sizeof(path), "%s/%s", R.dir, name);
    return access(path, F_OK) == 0;
}

/* ------------------------------------------------------------------ tests */

static void a_model_is_a_version_or_a_file(void **state)
{
    static const struct {
        const char *spec;
        bool evaluates, is_remote;
        const char *has, *has_not;
    } CASES[] = {
        {ONE, false, false, "package_digest", "heads"},
        {ONE, true, false, "\"accuracy\":0.5", "heads"},
        {HIDDEN, true, true, "\"accuracy\":0.5", "package_digest"},
        {TWO, true, true, "heads", "\"publish\""},
        {HIDDEN, false, false, "\"accuracy\":null", "package_digest"},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const bool is_published = strcmp(CASES[i].spec, HIDDEN) != 0;

        rig_open(CASES[i].spec, CASES[i].evaluates, CASES[i].is_remote);
        R.j.loss_scale = 8;
        R.j.trials.best_step = 2;
        finish_start(&R.j);
        while (go_on())
            poll();
        assert_int_equal(R.n_ends, 1);
        if (R.why.rc)
            fail_msg("case %zu: %s", i, R.why.msg);
        assert_int_equal(R.n_final, 2); /* the mean of the weights, by their name; frozen ones */
        assert_ptr_equal(R.final[0], (char *)R.j.slots[0].mem.base + 4);
        assert_ptr_equal(R.final[1], R.j.fixed.base);
        assert_has(R.j.result, CASES[i].has);
        assert_has_not(R.j.result, CASES[i].has_not);
        assert_has(R.j.result, "\"digest\":\"" DIGEST "\"");
        assert_true(is_there("jobs/trained.onnx"));
        assert_int_equal(is_there("blobs/packages/" DIGEST), is_published);
        assert_int_equal(R.push_fn != NULL, CASES[i].is_remote);
        if (R.push_fn)
            assert_int_equal(R.push.publish != NULL, is_published);
        poll(); /* it has ended: nothing more happens */
        assert_int_equal(R.n_ends, 1);
        rig_close();
        assert_int_equal(R.n_unloads, CASES[i].evaluates);
    }
}

static void each_step_may_fail_and_says_so(void **state)
{
    static const struct {
        const char *fails;
        int spared, native, steps; /* steps that succeed before: for those that end badly */
        int rc;
    } CASES[] = {
        {"sh_timer_add", 0, 0, 99, SH_E_NOMEM},
        {"disk_submit", 0, 0, 99, SH_E_QUEUEFULL},
        {"disk_submit", 1, 0, 99, SH_E_QUEUEFULL},
        {"mkdir", 0, 0, 99, SH_E_IO},
        {"memfd_create", 0, 0, 99, SH_E_IO},
        {"sh_spawn", 0, 0, 99, SH_E_IO},
        {"sh_spawn", 1, 0, 99, SH_E_IO},
        {"sh_loop_child", 0, 0, 99, SH_E_NOMEM},
        {"rename", 0, 0, 99, SH_E_IO}, /* neither it nor what was there can be had */
        {"blob_adopt", 0, 0, 99, SH_E_DISKFULL},
        {"store_load_internal", 0, 0, 99, SH_E_TOOBIG},
        {"eval_start", 0, 0, 99, SH_E_QUEUEFULL},
        {"push_start", 0, 0, 99, SH_E_NOMEM},
        {"utimensat", 0, 0, 99, SH_E_IO},
        {"task", 0, 0, 0, SH_E_DISKFULL},
        {"child", 0, 0, 1, SH_E_INVALID},
        {"crash", 0, 0, 1, 0},
        {"long", 0, 0, 1, 0},
        {"mute", 0, 0, 2, 0},
        {"task", 0, 0, 3, SH_E_DISKFULL},
        {"model", 0, 0, 4, SH_E_UNSUPPORTED},
        {"eval", 0, 0, 5, SH_E_INVALID},
        {"push", 0, 0, 6, SH_E_UNAVAILABLE},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const char *what = CASES[i].fails;

        rig_open(ONE, true, true);
        R.fails = what;
        R.spared = CASES[i].spared;
        finish_start(&R.j);
        for (int k = 0; k < CASES[i].steps && go_on(); k++)
            if (strcmp(what, "rename") == 0)
                R.spared = 0;
        if (!R.n_ends) {
            if (strcmp(what, "task") == 0)
                end_task(SH_E_DISKFULL);
            else if (strcmp(what, "child") == 0)
                end_child(REFUSAL, (off_t)strlen(REFUSAL), 0);
            else if (strcmp(what, "crash") == 0)
                end_child("", 0, SIGSEGV);
            else if (strcmp(what, "long") == 0)
                end_child("{", 2 << 20, 0);
            else if (strcmp(what, "mute") == 0)
                end_child("", 0, 0);
            else if (strcmp(what, "model") == 0) {
                R.model.phase = MODEL_FAILED;
                SH_FAIL(&R.model.why, SH_E_UNSUPPORTED, "it cannot be compiled");
                poll();
            } else if (strcmp(what, "eval") == 0)
                end_eval(SH_E_INVALID);
            else if (strcmp(what, "push") == 0)
                end_push(SH_E_UNAVAILABLE);
        }
        if (R.n_ends != 1 || R.why.rc == SH_OK || !R.why.msg[0] ||
            (CASES[i].rc && R.why.rc != CASES[i].rc))
            fail_msg("case %zu, %s: %d ends, %s \"%s\"", i, what, R.n_ends, sh_rc_name(R.why.rc),
                     R.why.msg);
        R.fails = NULL;
        rig_close();
    }
}

/* The same model may have been trained before; jobs may have a disk of their own; somebody may sit
 * on the name of the file for people. */
static void what_is_in_the_way_is_no_failure(void **state)
{
    static const struct {
        const char *fails;
        int native;
        bool is_link; /* trained.onnx */
    } CASES[] = {{"rename", EEXIST, false},
                 {"link", EXDEV, true},
                 {"link", EPERM, false},
                 {"mkdir", EEXIST, true}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        char path[SH_TEST_DIR_BYTES + 160];

        rig_open(ONE, false, false);
        R.fails = CASES[i].fails;
        R.native = CASES[i].native;
        R.spared = strcmp(R.fails, "rename") == 0; /* final.safetensors */
        snprintf(path, sizeof(path), "%s/blobs/packages/.job-7-w", R.dir);
        if (strcmp(R.fails, "mkdir") == 0)
            assert_int_equal(__real_mkdir(path, 0700), 0);
        snprintf(path, sizeof(path), "%s/blobs/packages/" DIGEST, R.dir);
        if (strcmp(R.fails, "rename") == 0)
            assert_int_equal(__real_mkdir(path, 0700), 0);
        finish_start(&R.j);
        while (go_on())
            if (R.fails && R.spared < -1)
                R.fails = NULL;
        assert_int_equal(R.n_ends, 1);
        if (R.why.rc)
            fail_msg("%s: %s (%s)", CASES[i].fails, R.why.msg, R.why.detail);
        assert_true(is_there("blobs/packages/" DIGEST));
        assert_int_equal(is_there("jobs/trained.onnx"), CASES[i].is_link);
        assert_false(is_there("blobs/packages/.job-7-w"));
        R.fails = NULL;
        rig_close();
    }
}

static void the_file_that_is_kept_must_be_there(void **state)
{
    (void)state;
    rig_open(HIDDEN, false, false);
    R.fails = "rename";
    R.spared = 1;
    finish_start(&R.j);
    while (go_on())
        ;
    assert_int_equal(R.n_ends, 1);
    assert_fails(R.why.rc, SH_E_IO, &R.why, "could not keep the trained model");
    R.fails = NULL;
    rig_close();
    assert_false(is_there("jobs/trained-w.tmp"));
}

/* A job is cancelled, or its executor ends, while the thread or a child is at work on it. */
static void it_may_end_at_any_step(void **state)
{
    (void)state;
    for (int steps = 0; steps < 7; steps++) {
        rig_open(ONE, true, true);
        finish_start(&R.j);
        for (int k = 0; k < steps; k++)
            assert_true(go_on());
        R.j.end = END_CANCEL;
        if (steps % 2 == 0 && R.task) { /* the thread is done before the turn ends the job */
            end_task(SH_E_IO);
            assert_int_equal(R.n_ends, 0);
        }
        rig_close();
        assert_int_equal(R.n_ends, 0);
        assert_int_equal(R.n_kills, steps == 1 || steps == 2);
    }
}

static void a_child_has_a_quarter_of_an_hour(void **state)
{
    (void)state;
    sh_clock_fake(1, 0);
    rig_open(ONE, false, false);
    finish_start(&R.j);
    assert_true(go_on());
    poll();
    assert_int_equal(R.n_kills, 0);
    sh_clock_advance(INT64_C(901000000000));
    poll();
    assert_int_equal(R.n_kills, 1);
    end_child("", 0, SIGKILL);
    assert_int_equal(R.n_ends, 1);
    assert_int_not_equal(R.why.rc, SH_OK);
    rig_close();
    sh_clock_real();
}

static void without_memory_it_fails_for_want_of_it(void **state)
{
    static const char *const SPECS[] = {TWO, HIDDEN};
    int n_failed = 0;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(SPECS); i++) {
        for (int n = 0, is_done = 0; !is_done; n++) {
            assert_true(n < 300);
            rig_open(SPECS[i], true, false);
            calls_left = n;
            finish_start(&R.j);
            while (go_on())
                ;
            is_done = calls_left > 0;
            calls_left = -1;
            assert_int_equal(R.n_ends, 1);
            n_failed += R.why.rc == SH_E_NOMEM;
            if (R.why.rc && R.why.rc != SH_E_NOMEM && R.why.rc != SH_E_INVALID &&
                R.why.rc != SH_E_BUG)
                fail_msg("%d allocations: %s %s", n, sh_rc_name(R.why.rc), R.why.msg);
            rig_close();
        }
    }
    assert_true(n_failed > 20);
}

static void what_was_left_long_ago_is_swept(void **state)
{
    static const struct {
        const char *name;
        bool is_folder, is_old, stays;
    } CASES[] = {{".job-1", true, true, false},
                 {".job-2", true, false, true},
                 {".job-3", false, true, true},
                 {"other", true, true, true}};
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};

    (void)state;
    rig_open(ONE, false, false);
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        char path[SH_TEST_DIR_BYTES + 64];

        snprintf(path, sizeof(path), "%s/blobs/packages/%s", R.dir, CASES[i].name);
        if (CASES[i].is_folder)
            assert_int_equal(__real_mkdir(path, 0700), 0);
        else
            write_at(path, "");
        if (CASES[i].is_old)
            assert_int_equal(__real_utimensat(AT_FDCWD, path, times, 0), 0);
    }
    finish_sweep(&R.files, "e0");
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        char name[64];

        snprintf(name, sizeof(name), "blobs/packages/%s", CASES[i].name);
        assert_int_equal(is_there(name), CASES[i].stays);
    }
    R.files.state_dir = "/nowhere";
    finish_sweep(&R.files, "e0"); /* the first start: there is no folder yet */
    R.files.state_dir = R.dir;
    rig_close();
}

/* In a job's folder, which it may share with others: its own, however young, and what is old. */
static void what_a_killed_executor_left_in_jobs_goes_when_it_starts_again(void **state)
{
    static const struct {
        const char *name;
        bool is_old, stays;
    } CASES[] = {{"trained-e0.tmp", false, false},
                 {"trained-e1.tmp", false, true},
                 {"trained-e2.tmp", true, false},
                 {"trained-e0.tmp2", false, true},
                 {"other", true, true}};
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    char path[SH_TEST_DIR_BYTES + 64];

    (void)state;
    rig_open(ONE, false, false);
    snprintf(path, sizeof(path), "%s/jobs/9", R.dir);
    assert_int_equal(__real_mkdir(path, 0700), 0);
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        snprintf(path, sizeof(path), "%s/jobs/9/%s", R.dir, CASES[i].name);
        assert_int_equal(__real_mkdir(path, 0700), 0);
        snprintf(path, sizeof(path), "%s/jobs/9/%s/model.onnx", R.dir, CASES[i].name);
        write_at(path, "half of it");
        snprintf(path, sizeof(path), "%s/jobs/9/%s", R.dir, CASES[i].name);
        if (CASES[i].is_old)
            assert_int_equal(__real_utimensat(AT_FDCWD, path, times, 0), 0);
    }
    finish_sweep(&R.files, "e0");
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        snprintf(path, sizeof(path), "jobs/9/%s", CASES[i].name);
        assert_int_equal(is_there(path), CASES[i].stays);
    }
    rig_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_a_version_or_a_file),
        cmocka_unit_test(each_step_may_fail_and_says_so),
        cmocka_unit_test(what_is_in_the_way_is_no_failure),
        cmocka_unit_test(the_file_that_is_kept_must_be_there),
        cmocka_unit_test(it_may_end_at_any_step),
        cmocka_unit_test(a_child_has_a_quarter_of_an_hour),
        cmocka_unit_test(without_memory_it_fails_for_want_of_it),
        cmocka_unit_test(what_was_left_long_ago_is_swept),
        cmocka_unit_test(what_a_killed_executor_left_in_jobs_goes_when_it_starts_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
