/* test_sched_oom.c - the 1st, 2nd, ... allocation of a scheduler fails, once, while it reads the
 * database, serves requests, trains and infers in batches. Peers come back when their connection
 * ends and ask again when they are refused: in the end everything is done. Not of jansson, which
 * takes some failed allocations for a wrong text.
 *
 * Without it: memory that is short for a moment could cost a job, a request or a version for good,
 * or end the scheduler. Under a sanitizer a leak on any path is fatal. */
/* uses: scheduler/jobs/jobs.o scheduler/models/models.o scheduler/pass/pass.o scheduler/decide/decide.o */
/* uses: scheduler/peers/sessions.o tests/unit/sched_world.o libscheduler.a */
/* link: -lpq -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc */
#include "tests/unit/oom.h"
#include "tests/unit/sched_world.h"

#include <sys/socket.h>

#define MOST_ALLOCATIONS 5000
#define MOST_TURNS 300 /* of 100 ms */

static struct peer x, a; /* an executor and an API */
static uint64_t rid;     /* of the present try ... */
static bool has_sizes;   /* ... of a request, first of a plain one, then of one with a shape */
static int n_answered;
static int saved;

static void own(bool begins)
{
    if (begins)
        saved = calls_left;
    calls_left = begins ? -1 : saved;
}

/* ------------------------------------------------------------------ peers */

static void job_said(int64_t job, uint32_t attempt, enum msg_job_phase phase)
{
    say(&x, &(struct sh_msg){.type = MSG_JOB_STATE,
                             .u.job_state = {.job = job,
                                             .attempt = attempt,
                                             .state = phase,
                                             .step = 4,
                                             .steps = 4,
                                             .busy_ns = MS,
                                             .result = phase == MSG_JOB_DONE
                                                           ? "{\"digest\":\"" W_DIGEST "\"}"
                                                           : ""}});
}

static void work(int64_t job, uint32_t attempt)
{
    char path[24];

    snprintf(path, sizeof(path), "%d/c", (int)job);
    job_said(job, attempt, MSG_JOB_RUNNING);
    say(&x, &(struct sh_msg){
                .type = MSG_JOB_CHECKPOINT,
                .u.job_checkpoint = {
                    .job = job, .attempt = attempt, .step = 2, .path = path, .digest = W_DIGEST}});
    say(&x, &(struct sh_msg){.type = MSG_JOB_EVALUATED,
                             .u.job_evaluated = {.job = job, .attempt = attempt, .text = "{}"}});
    job_said(job, attempt, MSG_JOB_DONE);
}

/* False: the connection has ended. */
static bool executor_does(void)
{
    static uint64_t part;
    const struct sh_msg *m = heard(&x, ANY_MSG);

    if (!m)
        return false;
    if (m->type == MSG_MODEL_LOAD) {
        model_ready(&x, m->u.model_load.version_id);
    } else if (m->type == MSG_SHAPE_LOAD) {
        uint32_t size = 4;

        say(&x, &(struct sh_msg){.type = MSG_SHAPE_STATE,
                                 .u.shape_state = {.version_id = m->u.shape_load.version_id,
                                                   .sizes = {&size, sizeof(size)},
                                                   .state = MSG_MODEL_READY}});
    } else if (m->type == MSG_RUN_PART) {
        part = m->u.run_part.rid;
    } else if (m->type == MSG_RUN) {
        n_answered += part == rid; /* its result goes to the API */
        has_sizes |= part == rid;
        rid += part == rid;
        run_done(&x, m->u.run.run_id, 0);
    } else if (m->type == MSG_JOB_START) {
        work(m->u.job_start.job, m->u.job_start.attempt);
    } else if (m->type == MSG_BATCH_START) {
        work(m->u.batch_start.job, m->u.batch_start.attempt);
    }
    return true;
}

static bool is_connected(struct peer *p)
{
    char c;

    return p->fd >= 0 && recv(p->fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) != 0;
}

static void connect_again(struct peer *p, const struct sh_msg *hello)
{
    peer_close(p);
    if (w.s->sessions.n_listen == 0)
        return; /* not yet */
    peer_open(p);
    say(p, hello);
    if (p == &x && is_connected(p))
        say(p, &(struct sh_msg){.type = MSG_EXEC_SYNCED});
}

static void executor_turn(void)
{
    if (!is_connected(&x))
        connect_again(&x,
                      &(struct sh_msg){.type = MSG_EXEC_HELLO,
                                       .u.exec_hello = {.executor = "x", .pool_bytes = 1 << 30}});
    while (is_connected(&x) && executor_does())
        ;
    if (is_connected(&x))
        say(&x, &(struct sh_msg){.type = MSG_PONG});
}

static void ask(void)
{
    const uint32_t size = 4;

    infer_open(&a, rid, 1, has_sizes);
    if (is_connected(&a))
        infer_ready(&a, rid, &size, has_sizes);
}

static void api_turn(void)
{
    static uint64_t asked;
    const struct sh_msg *m;

    if (!is_connected(&a)) {
        asked = 0;
        connect_again(&a, &(struct sh_msg){.type = MSG_API_HELLO, .u.api_hello = {.api_id = 7}});
    }
    while (is_connected(&a) && (m = heard(&a, ANY_MSG)))
        if (m->type == MSG_INFER_REFUSED && m->u.infer_refused.rid == rid)
            rid++;
    if (is_connected(&a) && n_answered < 2 && asked != rid) {
        asked = rid;
        ask();
    }
    if (is_connected(&a))
        say(&a, &(struct sh_msg){.type = MSG_PONG});
}

/* ------------------------------------------------------------------ the walk */

static bool is_done(void)
{
    return n_answered == 2 && strcmp(w.jobs[0].state, "SUCCEEDED") == 0 &&
           strcmp(w.jobs[1].state, "SUCCEEDED") == 0 && strcmp(w.models[0].state, "READY") == 0;
}

/* Returns whether an allocation has failed. */
static bool runs_through_without(int n, void **state)
{
    bool has_failed;

    world_begin(state);
    x = a = (struct peer){.fd = -1};
    rid = 1 + (uint64_t)n * 1000;
    n_answered = 0;
    has_sizes = false;
    w.own = own;
    w.conf.poll_ms = 500;
    w.conf.full_look_ms = 1000;
    w.models[0].state = "REGISTERED";
    w.models[0].warm = "[[4]]";
    w.models[0].profile = "[{\"batch\":1,\"compute_ns\":1e6}]";
    add_job(5);
    add_job(6)->line.is_batch = true;
    w.jobs[0].array_max = 1;
    w.jobs[0].line.array_id = 3;
    calls_left = n;
    for (int i = 0; i < MOST_TURNS && !is_done(); i++) {
        executor_turn();
        api_turn();
        advance(100 * MS);
    }
    has_failed = calls_left < 0;
    calls_left = -1;
    if (!is_done())
        fail_msg("allocation %d: %d answered, jobs %s and %s, version %s", n, n_answered,
                 w.jobs[0].state, w.jobs[1].state, w.models[0].state);
    own(true);
    peer_close(&x);
    peer_close(&a);
    world_end(state);
    return has_failed;
}

static void one_allocation_that_fails_costs_nothing(void **state)
{
    int n = 0;

    fails_once = true;
    while (runs_through_without(n, state))
        assert_true(++n < MOST_ALLOCATIONS);
    assert_true(n > 100); /* it is about something */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_allocation_that_fails_costs_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
