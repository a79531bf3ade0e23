/* test_scheduler_store.c - without it, two schedulers could lead at once, one that was replaced
 * could still write, a job's state and its events could disagree, and a write repeated after a lost
 * connection could happen twice.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: scheduler/database/store.o scheduler/database/store_job.o scheduler/database/store_report.o scheduler/database/store_share.o scheduler/database/store_usage.o scheduler/database/store_view.o scheduler/database/store_rows.o scheduler/decide/lines.o scheduler/decide/job.o */
/* link: -lpq */
#include "scheduler/database/store_view.h"
#include "tests/db/lease_world.h"

#include <math.h>

static void assert_text(struct db *db, const char *sql, const char *want)
{
    struct db_res *r = query(db, sql);

    assert_int_equal(db_rows(r), 1);
    assert_string_equal(db_text(r, 0, 0) ? db_text(r, 0, 0) : "(null)", want);
    db_res_free(r);
}

static void fill(struct db *db)
{
    fill_job(db);
    run(db, "INSERT INTO quota (tenant_id, guaranteed_gpus, borrowing_limit, max_gpus,"
            " lending_limit) VALUES (1, 1, 2, 8, 0.5)");
}

static int set_up(void **state)
{
    return set_up_world(state, fill);
}

/* ------------------------------------------------------------------ lease */

static void only_one_of_two_holds_the_lease(void **state)
{
    struct world *w = *state;
    struct store_lease other = {.fence.holder = "b/2", .ttl_ms = 60000};

    assert_ok(store_lease_acquire(w->b, &other, NULL));
    assert_false(other.held);
    assert_ok(store_lease_renew(w->a, &w->lease, NULL));
    assert_true(w->lease.held);
    assert_ok(store_lease_renew(w->b, &other, NULL));
    assert_false(other.held);
}

static void a_lease_that_ended_is_taken_with_the_next_epoch_and_not_renewed(void **state)
{
    struct world *w = *state;
    struct store_lease other = {.fence.holder = "b/2", .ttl_ms = 60000};

    run(w->a, "UPDATE lease SET expires_at = now() - interval '1 s'");
    assert_ok(store_lease_acquire(w->b, &other, NULL));
    assert_true(other.held);
    assert_int_equal(other.fence.epoch, w->fence.epoch + 1);
    assert_ok(store_lease_renew(w->a, &w->lease, NULL));
    assert_false(w->lease.held);
}

static void a_lease_that_ended_and_was_not_taken_can_be_renewed(void **state)
{
    struct world *w = *state;

    run(w->a, "UPDATE lease SET expires_at = now() - interval '1 s'");
    assert_ok(store_lease_renew(w->a, &w->lease, NULL));
    assert_true(w->lease.held);
}

static void a_lease_that_was_given_back_is_free_at_once(void **state)
{
    struct world *w = *state;
    struct store_lease other = {.fence.holder = "b/2", .ttl_ms = 60000};

    assert_ok(store_lease_release(w->a, &w->lease, NULL));
    assert_ok(store_lease_acquire(w->b, &other, NULL));
    assert_true(other.held);
}

/* ------------------------------------------------------------------ jobs */

static struct store_start *start_arg(struct world *w)
{
    struct store_start *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    s->out = calloc(1, sizeof(*s->out));
    assert_non_null(s->out);
    s->fence = w->fence;
    s->job = 1;
    s->attempt = 1;
    sh_strlcpy(s->executor, "cpu0", sizeof(s->executor));
    return s;
}

static void start(struct world *w)
{
    struct store_start *s = start_arg(w);
    struct sh_err err = {0};

    assert_ok_err(store_job_start(w->a, s, &err), &err);
    assert_int_equal(s->out->state, JOB_STARTING);
    store_start_free(s);
}

static struct store_write *write_arg(struct world *w, size_t n, const enum job_state *chain)
{
    struct store_write *x = calloc(1, sizeof(*x));

    assert_non_null(x);
    x->out = calloc(1, sizeof(*x->out));
    assert_non_null(x->out);
    x->fence = w->fence;
    x->job = 1;
    x->parent_version = 1;
    x->attempt = 1;
    sh_strlcpy(x->executor, "cpu0", sizeof(x->executor));
    for (size_t i = 0; i < n; i++)
        x->changes[i] = (struct job_change){.from = chain[i], .to = chain[i + 1], .step = 5};
    x->n_changes = n;
    x->progress = (struct job_progress){.step = 5, .steps = 10, .loss = 0.5, .samples_per_s = 7};
    return x;
}

static void a_start_gives_all_that_the_executor_needs_and_one_event(void **state)
{
    struct world *w = *state;
    struct store_start *s = start_arg(w);
    struct sh_err err = {0};

    run(w->a, "UPDATE job SET step = 30, steps_redone = 2, busy_ns = 9, started_at = now()");
    run(w->a, "INSERT INTO job_event (job_id, from_state, to_state, reason) VALUES"
              " (1, 'RUNNING', 'QUEUED', 'ExecutorLost')");
    run(w->a, "INSERT INTO checkpoint (job_id, attempt, step, path, digest, bytes)"
              " VALUES (1, 1, 20, '1/ckpt-20', 'd', 1), (1, 1, 10, '1/ckpt-10', 'd', 1)");
    assert_ok_err(store_job_start(w->a, s, &err), &err);
    assert_int_equal(s->out->state, JOB_STARTING);
    assert_string_equal(s->out->tenant, "research");
    assert_string_equal(s->out->model, "digits");
    assert_string_equal(s->out->package, "packages/a");
    assert_string_equal(s->out->dataset, "datasets/b");
    assert_string_equal(s->out->eval_dataset, "");
    assert_string_equal(s->out->resume, "1/ckpt-20");
    assert_int_equal(s->out->resume_step, 20);
    assert_has(s->out->spec, "\"batch\"");
    assert_has(s->out->about, "started again after ExecutorLost: it had done 30, the newest "
                              "checkpoint has 20");
    assert_int_equal(s->out->base.redone, 12); /* steps 21 to 30 are done again */
    assert_int_equal(s->out->base.busy_ns, 9);
    assert_int_equal(number(w->a, "SELECT steps_redone FROM job"), 12);
    assert_text(w->a, "SELECT state || ' ' || executor || ' ' || attempt FROM job",
                "STARTING cpu0 1");
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event WHERE to_state = 'STARTING'"), 1);
    store_start_free(s);
}

static void a_start_that_is_repeated_after_a_lost_commit_happens_once(void **state)
{
    struct world *w = *state;

    run(w->a, "UPDATE job SET step = 30");
    start(w);
    start(w);
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event"), 1);
    assert_int_equal(number(w->a, "SELECT steps_redone FROM job"), 30);
}

static void a_start_after_the_user_cancelled_changes_nothing(void **state)
{
    struct world *w = *state;
    struct store_start *s = start_arg(w);

    run(w->a, "UPDATE job SET state = 'CANCELLED', finished_at = now()");
    assert_ok(store_job_start(w->a, s, NULL));
    assert_int_equal(s->out->state, JOB_CANCELLED);
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event"), 0);
    store_start_free(s);
}

static void a_job_whose_dataset_is_gone_fails_with_the_reason(void **state)
{
    struct world *w = *state;
    struct store_start *s = start_arg(w);

    run(w->a, "UPDATE dataset SET state = 'DELETED'");
    assert_ok(store_job_start(w->a, s, NULL));
    assert_int_equal(s->out->state, JOB_FAILED);
    assert_text(w->a, "SELECT state || ' ' || error_code || ': ' || error FROM job",
                "FAILED NOTFOUND: the dataset is deleted");
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event WHERE to_state = 'FAILED'"), 1);
    store_start_free(s);
}

static void a_reason_that_is_too_long_is_cut_between_two_characters(void **state)
{
    struct world *w = *state;
    struct sh_err err = {0};

    for (int i = 0; i < 2; i++) { /* one of the two ends inside of a character */
        struct store_start *s = start_arg(w);

        run(w->a, i ? "UPDATE model_version SET state = 'FAILED', reason = repeat('\xc3\xa4', 100)"
                    : "UPDATE model_version SET state = 'FAILED', reason = 'x' || "
                      "repeat('\xc3\xa4', 100)");
        run(w->a, "DELETE FROM job_event");
        run(w->a, "ALTER TABLE job DISABLE TRIGGER job_final_stays");
        run(w->a, "UPDATE job SET state = 'QUEUED', finished_at = NULL");
        run(w->a, "ALTER TABLE job ENABLE TRIGGER job_final_stays");
        assert_ok_err(store_job_start(w->a, s, &err), &err);
        assert_int_equal(s->out->state, JOB_FAILED);
        assert_int_equal(number(w->a, "SELECT count(*) FROM job WHERE error LIKE"
                                      " 'the model version is failed: %\xc3\xa4'"),
                         1);
        store_start_free(s);
    }
}

static void every_change_has_its_event_in_order(void **state)
{
    static const enum job_state CHAIN[] = {JOB_STARTING, JOB_RUNNING, JOB_PREEMPTED, JOB_RUNNING};
    struct world *w = *state;
    struct store_write *x = write_arg(w, 3, CHAIN);
    struct sh_err err = {0};

    start(w);
    x->checkpoints = calloc(1, sizeof(*x->checkpoints));
    assert_non_null(x->checkpoints);
    x->n_checkpoints = 1;
    x->checkpoints[0] = (struct job_checkpoint){.step = 4, .attempt = 1, .bytes = 99};
    assert_ok_err(store_job_write(w->a, x, &err), &err);
    assert_false(x->out->conflict);
    assert_text(w->a,
                "SELECT string_agg(from_state || '>' || to_state, ' ' ORDER BY id)"
                " FROM job_event",
                "QUEUED>STARTING STARTING>RUNNING RUNNING>PREEMPTED PREEMPTED>RUNNING");
    assert_text(w->a, "SELECT state || step || '/' || steps || ' ' || loss FROM job",
                "RUNNING5/10 0.5");
    assert_int_equal(number(w->a, "SELECT bytes FROM checkpoint WHERE step = 4"), 99);
    store_write_free(x);
}

static void changes_from_another_state_write_nothing_and_say_what_it_is(void **state)
{
    static const enum job_state CHAIN[] = {JOB_STARTING, JOB_RUNNING, JOB_COMPLETING};
    struct world *w = *state;
    struct store_write *x = write_arg(w, 2, CHAIN);

    start(w);
    run(w->a, "UPDATE job SET state = 'CANCELLING'");
    assert_ok(store_job_write(w->a, x, NULL));
    assert_true(x->out->conflict);
    assert_int_equal(x->out->state, JOB_CANCELLING);
    assert_text(w->a, "SELECT state FROM job", "CANCELLING");
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event"), 1);
    store_write_free(x);
}

static void a_chain_that_breaks_in_the_middle_leaves_no_trace(void **state)
{
    static const enum job_state CHAIN[] = {JOB_STARTING, JOB_RUNNING, JOB_COMPLETING};
    struct world *w = *state;
    struct store_write *x = write_arg(w, 2, CHAIN);
    struct sh_err err = {0};

    start(w);
    x->changes[1].from = JOB_PREEMPTED;
    assert_fails(store_job_write(w->a, x, &err), SH_E_BUG, &err, "skipped a state");
    assert_text(w->a, "SELECT state FROM job", "STARTING");
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event"), 1);
    store_write_free(x);
}

static struct store_write *success_arg(struct world *w)
{
    static const enum job_state CHAIN[] = {JOB_STARTING, JOB_COMPLETING, JOB_SUCCEEDED};
    struct store_write *x = write_arg(w, 2, CHAIN);

    x->result = strdup("{\"accuracy\":0.98}");
    x->version.digest = strdup("cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc");
    x->version.package = strdup("packages/c");
    x->version.inputs = strdup("[{\"name\":\"x\"}]");
    x->version.outputs = strdup("[]");
    x->version.meta = strdup("{\"opset\":18}");
    x->version.bytes = 1234;
    return x;
}

static void success_makes_the_next_version_in_the_same_transaction(void **state)
{
    struct world *w = *state;
    struct store_write *x = success_arg(w);
    struct sh_err err = {0};

    start(w);
    assert_ok_err(store_job_write(w->a, x, &err), &err);
    assert_int_equal(x->out->version, 2);
    assert_text(w->a,
                "SELECT state || ' ' || (result->>'version') || ' ' || (result->>'accuracy')"
                " || ' ' || (finished_at IS NOT NULL) FROM job",
                "SUCCEEDED 2 0.98 true");
    assert_text(w->a,
                "SELECT version || state || package || max_batch || precision || source_job"
                " || bytes || (meta->>'opset') FROM model_version WHERE id = "
                "(SELECT result_version_id FROM job)",
                "2REGISTEREDpackages/c16tf321123418");
    store_write_free(x);
}

static void success_that_is_repeated_makes_one_version(void **state)
{
    struct world *w = *state;
    struct store_write *x = success_arg(w);

    start(w);
    assert_ok(store_job_write(w->a, x, NULL));
    assert_ok(store_job_write(w->a, x, NULL));
    assert_false(x->out->conflict);
    assert_int_equal(x->out->version, 2);
    assert_int_equal(number(w->a, "SELECT count(*) FROM model_version"), 2);
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event"), 3);
    store_write_free(x);
}

static void only_the_alias_that_its_user_names_stands_for_the_new_version(void **state)
{
    struct world *w = *state;
    struct store_write *x = success_arg(w);

    run(w->a, "INSERT INTO model_alias (model_id, name, targets) SELECT id, a, '[{\"version\": 1}]'"
              " FROM model, unnest('{stable,canary}'::text[]) a");
    run(w->a, "UPDATE job SET spec = spec || '{\"publish_as\": \"canary\"}'");
    start(w);
    assert_ok(store_job_write(w->a, x, NULL));
    assert_ok(store_job_write(w->a, x, NULL)); /* repeated: it moves once */
    assert_text(w->a,
                "SELECT string_agg(concat(name, targets->0->'version', previous->0->'version',"
                " generation), ' ' ORDER BY name) FROM model_alias",
                "canary212 stable11");
    assert_text(w->a, "SELECT (result->>'alias') || action FROM job, audit", "canaryalias.promote");
    store_write_free(x);
}

static void success_of_a_deleted_model_makes_no_version(void **state)
{
    struct world *w = *state;
    struct store_write *x = success_arg(w);

    start(w);
    run(w->a, "UPDATE model SET deleted_at = now()");
    assert_ok(store_job_write(w->a, x, NULL));
    assert_int_equal(x->out->version_id, 0);
    assert_text(w->a, "SELECT state FROM job", "SUCCEEDED");
    assert_int_equal(number(w->a, "SELECT count(*) FROM model_version"), 1);
    store_write_free(x);
}

static void a_version_that_cannot_be_made_leaves_the_job_as_it_was(void **state)
{
    struct world *w = *state;
    struct store_write *x = success_arg(w);
    struct sh_err err = {0};

    start(w);
    x->version.digest[0] = '?';
    assert_true(store_job_write(w->a, x, &err) != SH_OK);
    assert_text(w->a, "SELECT state FROM job", "STARTING");
    assert_int_equal(number(w->a, "SELECT count(*) FROM job_event"), 1);
    store_write_free(x);
}

static void a_failure_keeps_its_code_and_text_and_a_requeued_job_has_no_executor(void **state)
{
    static const enum job_state CHAIN[] = {JOB_STARTING, JOB_QUEUED};
    struct world *w = *state;
    struct store_write *x = write_arg(w, 1, CHAIN);

    start(w);
    x->error_rc = SH_E_DEVLOST;
    sh_strlcpy(x->error, "the device is lost", sizeof(x->error));
    sh_strlcpy(x->changes[0].reason, "BackoffUntil", sizeof(x->changes[0].reason));
    assert_ok(store_job_write(w->a, x, NULL));
    assert_text(w->a, "SELECT concat_ws('|', state, executor, reason, error_code, error) FROM job",
                "QUEUED|BackoffUntil|DEVLOST|the device is lost");
    assert_text(w->a, "SELECT detail->>'message' FROM job_event ORDER BY id DESC LIMIT 1",
                "the device is lost");
    store_write_free(x);
}

/* ------------------------------------------------------------------ what clients wish */

static void requeue(struct world *w, const char *reason)
{
    static const enum job_state CHAIN[] = {JOB_STARTING, JOB_QUEUED};
    struct store_write *x = write_arg(w, 1, CHAIN);
    struct sh_err err = {0};

    sh_strlcpy(x->changes[0].reason, reason, sizeof(x->changes[0].reason));
    assert_ok_err(store_job_write(w->a, x, &err), &err);
    assert_false(x->out->conflict);
    assert_int_equal(x->out->state, number(w->a, "SELECT (state = 'SUSPENDED')::int FROM job")
                                        ? JOB_SUSPENDED
                                        : JOB_QUEUED);
    store_write_free(x);
}

static void a_wish_to_suspend_wins_over_every_way_back_to_the_queue(void **state)
{
    struct world *w = *state;

    start(w);
    run(w->a, "UPDATE job SET wish = 'SUSPEND'");
    requeue(w, "ExecutorLost");
    assert_text(w->a, "SELECT concat_ws('|', state, reason, wish, executor) FROM job",
                "SUSPENDED|Suspended|");
    assert_text(w->a,
                "SELECT from_state || to_state || reason FROM job_event ORDER BY id DESC LIMIT"
                " 1",
                "STARTINGSUSPENDEDSuspended");
}

static void a_requeued_job_goes_behind_its_equals_and_others_keep_their_place(void **state)
{
    struct world *w = *state;

    run(w->a, "UPDATE job SET queued_at = now() - interval '1 hour'");
    start(w);
    requeue(w, "Priority");
    assert_int_equal(number(w->a, "SELECT (queued_at < now() - interval '1 min')::int FROM job"),
                     1);
    start(w);
    run(w->a, "UPDATE job SET wish = 'REQUEUE'");
    requeue(w, "");
    assert_text(w->a,
                "SELECT state || reason || wish || (queued_at > now() - interval '1 min')"
                " FROM job",
                "QUEUEDRequeuedtrue");
}

static void what_it_has_had_is_written_when_it_waits_and_without_levels_all_of_it_goes(void **state)
{
    static const enum job_state RUN[] = {JOB_STARTING, JOB_RUNNING};
    static const enum job_state WAIT[] = {JOB_RUNNING, JOB_QUEUED};
    struct world *w = *state;
    struct store_write *x;

    start(w);
    x = write_arg(w, 1, RUN);
    x->handicap_us = 5;
    assert_ok(store_job_write(w->a, x, NULL));
    store_write_free(x);
    assert_int_equal(number(w->a, "SELECT handicap_us FROM job"), 0);
    x = write_arg(w, 1, WAIT);
    x->handicap_us = 7000001;
    assert_ok(store_job_write(w->a, x, NULL));
    store_write_free(x);
    assert_int_equal(number(w->a, "SELECT handicap_us FROM job"), 7000001);
    run(w->a, "UPDATE job SET state = 'HELD'");
    assert_ok(store_lines_reset(w->a, &w->fence, NULL));
    assert_int_equal(number(w->a, "SELECT handicap_us FROM job"), 0);
}

static void a_wish_outlives_a_change_that_keeps_the_executor(void **state)
{
    static const enum job_state CHAIN[] = {JOB_STARTING, JOB_RUNNING};
    struct world *w = *state;
    struct store_write *x = write_arg(w, 1, CHAIN);

    start(w);
    run(w->a, "UPDATE job SET wish = 'SUSPEND'");
    assert_ok(store_job_write(w->a, x, NULL));
    assert_text(w->a, "SELECT state || wish FROM job", "RUNNINGSUSPEND");
    store_write_free(x);
}

static void a_checkpoint_that_was_asked_for_is_answered_once(void **state)
{
    struct world *w = *state;
    static const enum job_state NONE[] = {JOB_STARTING};

    start(w);
    run(w->a, "UPDATE job SET save_asked = 2");
    for (int i = 0; i < 2; i++) { /* repeated after a lost commit */
        struct store_write *x = write_arg(w, 0, NONE);
        struct sh_err err = {0};

        x->saved = (struct job_saved){.asked = 2, .step = 7};
        assert_ok_err(store_job_write(w->a, x, &err), &err);
        store_write_free(x);
    }
    assert_int_equal(number(w->a, "SELECT save_done FROM job"), 2);
    assert_text(w->a,
                "SELECT string_agg(from_state || to_state || reason || (detail ->> 'step'),"
                " ' ') FROM job_event WHERE reason LIKE 'Check%'",
                "STARTINGSTARTINGCheckpointWritten7");
}

static void an_evaluation_stays_until_there_is_another(void **state)
{
    static const char *const SAID[] = {"{\"step\":10}", "", "{\"step\":20}"};
    static const char *const WANT[] = {"10", "10", "20"};
    static const enum job_state NONE[] = {JOB_STARTING};
    struct world *w = *state;

    start(w);
    for (size_t i = 0; i < SH_ARRAY_LEN(SAID); i++) {
        struct store_write *x = write_arg(w, 0, NONE);
        struct sh_err err = {0};

        sh_strlcpy(x->evaluation, SAID[i], sizeof(x->evaluation));
        assert_ok_err(store_job_write(w->a, x, &err), &err);
        store_write_free(x);
        assert_text(w->a, "SELECT evaluation ->> 'step' FROM job", WANT[i]);
    }
}

static void a_back_off_is_in_the_row_until_the_next_start(void **state)
{
    static const enum job_state CHAIN[] = {JOB_STARTING, JOB_QUEUED};
    struct world *w = *state;
    struct store_write *x = write_arg(w, 1, CHAIN);

    start(w);
    x->backoff_ms = 30000;
    assert_ok(store_job_write(w->a, x, NULL));
    store_write_free(x);
    assert_int_equal(number(w->a, "SELECT (not_before - now() BETWEEN interval '20 s' AND interval"
                                  " '30 s')::int FROM job"),
                     1);
    start(w);
    assert_int_equal(number(w->a, "SELECT (not_before IS NULL)::int FROM job"), 1);
}

static void what_has_ended_stays_as_it_ended(void **state)
{
    static struct db_stmt again = {"again", "UPDATE job SET state = 'QUEUED', finished_at = NULL",
                                   0};
    struct world *w = *state;
    struct sh_err err = {0};

    run(w->a, "UPDATE job SET state = 'EXPIRED', finished_at = now()");
    assert_fails(db_exec(w->a, &again, NULL, NULL, &err), SH_E_INVALID, &err, "");
    assert_text(w->a, "SELECT state FROM job", "EXPIRED");
}

static void the_scheduler_reads_what_a_client_asks(void **state)
{
    struct world *w = *state;
    struct store_view *v = calloc(1, sizeof(*v));
    struct sh_err err = {0};

    assert_non_null(v);
    v->fence = w->fence;
    v->most = (struct store_limits){100, 100, 100, 100};
    run(w->a, "UPDATE job SET wish = 'REQUEUE', save_asked = 3, save_done = 1, min_runtime_ms = 5,"
              " preemptible = false, gpus = 4, deadline = now() + interval '1 min'");
    assert_ok_err(store_view_load(w->a, v, &err), &err);
    assert_int_equal(v->n_jobs, 1);
    assert_string_equal(v->jobs[0].wish, "REQUEUE");
    assert_int_equal(v->jobs[0].save_asked, 3);
    assert_int_equal(v->jobs[0].save_done, 1);
    assert_int_equal(v->jobs[0].min_runtime_ms, 5);
    assert_false(v->jobs[0].line.preemptible);
    assert_int_equal(v->jobs[0].line.gpus, 4);
    assert_true(v->jobs[0].deadline_s > 50 && v->jobs[0].deadline_s <= 60);
    assert_true(isnan(v->jobs[0].not_before_s));
    store_view_free(v);
}

/* ------------------------------------------------------------------ the fence */

static void a_leader_that_was_replaced_can_write_and_read_nothing(void **state)
{
    static const enum job_state CHAIN[] = {JOB_STARTING, JOB_RUNNING};
    struct world *w = *state;
    struct store_lease other = {.fence.holder = "b/2", .ttl_ms = 60000};
    struct store_start *s = start_arg(w);
    struct store_write *x = write_arg(w, 1, CHAIN);
    struct store_model_state m = {.fence = w->fence, .version_id = 1, .state = "FAILED"};
    struct store_executor e = {.fence = w->fence, .name = "cpu0", .up = true};
    struct msg_usage_row row = {.tenant = "research", .id = 1, .gpu_ns = 5};
    struct store_usage u = {.fence = w->fence, .source = "a", .number = 1, .rows = &row, .n = 1};
    struct store_reasons *q = calloc(1, sizeof(*q));
    struct store_view *v = calloc(1, sizeof(*v));

    assert_non_null(q);
    assert_non_null(v);
    v->fence = w->fence;
    v->most = (struct store_limits){100, 100, 100, 100};
    q->fence = w->fence;
    q->n = 1;
    q->job[0] = 1;
    sh_strlcpy(q->reason[0], "Resources", sizeof(q->reason[0]));
    run(w->a, "UPDATE lease SET expires_at = now() - interval '1 s'");
    run(w->a, "UPDATE model_version SET state = 'LOADING'");
    assert_ok(store_lease_acquire(w->b, &other, NULL));
    assert_true(other.held);
    assert_int_equal(store_job_start(w->a, s, NULL), SH_E_PRECONDITION);
    assert_int_equal(store_job_write(w->a, x, NULL), SH_E_PRECONDITION);
    assert_int_equal(store_model_set_state(w->a, &m, NULL), SH_E_PRECONDITION);
    assert_int_equal(store_executor_put(w->a, &e, NULL), SH_E_PRECONDITION);
    assert_int_equal(store_usage_add(w->a, &u, NULL), SH_E_PRECONDITION);
    assert_int_equal(store_job_reasons(w->a, q, NULL), SH_E_PRECONDITION);
    assert_int_equal(store_lines_reset(w->a, &w->fence, NULL), SH_E_PRECONDITION);
    /* Nor read: the other one may have removed changes that it has not seen. */
    assert_int_equal(store_view_load(w->a, v, NULL), SH_E_PRECONDITION);
    assert_text(w->a, "SELECT state || reason || step FROM job", "QUEUED0");
    assert_text(w->a, "SELECT state FROM model_version", "LOADING");
    assert_int_equal(number(w->a, "SELECT (SELECT count(*) FROM job_event) + (SELECT count(*) FROM"
                                  " usage) + (SELECT count(*) FROM executor)"),
                     0);
    free(q);
    store_view_free(v);
    store_start_free(s);
    store_write_free(x);
}

static void the_same_epoch_with_another_holder_is_refused_too(void **state)
{
    struct world *w = *state;
    struct store_executor e = {.fence = w->fence, .name = "cpu0"};

    sh_strlcpy(e.fence.holder, "a/2", sizeof(e.fence.holder));
    assert_int_equal(store_executor_put(w->a, &e, NULL), SH_E_PRECONDITION);
}

/* ------------------------------------------------------------------ the rest */

static void a_version_that_is_ready_or_deleted_does_not_change_its_state(void **state)
{
    struct world *w = *state;
    struct store_model_state m = {
        .fence = w->fence, .version_id = 1, .state = "READY", .image_bytes = 77};

    assert_ok(store_model_set_state(w->a, &m, NULL));
    assert_int_equal(number(w->a, "SELECT image_bytes FROM model_version"), -1);
    run(w->a, "UPDATE model_version SET state = 'LOADING'");
    assert_ok(store_model_set_state(w->a, &m, NULL));
    assert_int_equal(number(w->a, "SELECT image_bytes FROM model_version"), 77);
    assert_text(w->a, "SELECT state || (ready_at IS NOT NULL) FROM model_version", "READYtrue");
}

static void only_queued_jobs_get_a_reason_to_wait(void **state)
{
    struct world *w = *state;
    struct store_reasons *q = calloc(1, sizeof(*q));

    assert_non_null(q);
    q->fence = w->fence;
    q->n = 1;
    q->job[0] = 1;
    sh_strlcpy(q->reason[0], "QuotaLimit", sizeof(q->reason[0]));
    assert_ok(store_job_reasons(w->a, q, NULL));
    assert_text(w->a, "SELECT reason FROM job", "QuotaLimit");
    start(w);
    assert_ok(store_job_reasons(w->a, q, NULL));
    assert_text(w->a, "SELECT reason FROM job", "");
    free(q);
}

static void the_view_holds_tenants_models_jobs_and_decayed_usage(void **state)
{
    struct world *w = *state;
    struct store_view *v = calloc(1, sizeof(*v));
    struct sh_err err = {0};

    assert_non_null(v);
    v->fence = w->fence;
    v->most = (struct store_limits){100, 100, 100, 100};
    v->with_usage = true;
    v->half_life_s = 3600;
    run(w->a, "UPDATE queue SET priority = 10");
    run(w->a, "INSERT INTO usage (tenant_id, model_id, class, minute, gpu_ns)"
              " VALUES (1, 1, 'training', now() - interval '1 hour', 1000)");
    assert_ok_err(store_view_load(w->a, v, &err), &err);
    assert_int_equal(v->n_tenants, 2);
    assert_true(v->tenants[0].max_gpus == 3); /* guarantee + borrowing, below the maximum */
    assert_true(v->tenants[0].lending_limit == 0.5 && v->tenants[1].lending_limit < 0);
    assert_true(v->tenants[1].max_gpus < 0); /* no quota row: unlimited */
    assert_int_equal(v->n_models, 1);
    assert_string_equal(v->models[0].package, "packages/a");
    assert_string_equal(v->models[0].on_miss, "best-effort");
    assert_int_equal(v->n_jobs, 1);
    assert_int_equal(v->jobs[0].priority, 13);
    assert_string_equal(v->jobs[0].version_state, "READY");
    assert_string_equal(v->jobs[0].executor, "");
    assert_int_equal(v->n_usage, 1);
    assert_true(v->usage_ns[0] > 490 && v->usage_ns[0] < 510);
    store_view_free(v);
}

static void deleted_models_and_finished_jobs_are_not_in_the_view(void **state)
{
    struct world *w = *state;
    struct store_view *v = calloc(1, sizeof(*v));

    assert_non_null(v);
    v->fence = w->fence;
    v->most = (struct store_limits){100, 100, 100, 100};
    run(w->a, "UPDATE model SET deleted_at = now()");
    run(w->a, "UPDATE job SET state = 'FAILED', finished_at = now()");
    assert_ok(store_view_load(w->a, v, NULL));
    assert_int_equal(v->n_models, 0);
    assert_int_equal(v->n_jobs, 0);
    store_view_free(v);
}

/* ------------------------------------------------------------------ shares */

static void a_share_replaces_the_row_before_and_a_replaced_leader_shows_nothing(void **state)
{
    struct world *w = *state;
    struct store_shares *x = calloc(1, sizeof(*x));
    struct sh_err err = {0};

    assert_non_null(x);
    x->fence = w->fence;
    x->half_life_s = 3600;
    x->n = 3;
    x->rows[0] = (struct store_share){.tenant_id = 1, .max_gpus = -1, .fair_gpus = 0.5};
    x->rows[1] = (struct store_share){.tenant_id = 2, .max_gpus = 3, .usage_ns = 1e18 / 3};
    x->rows[2] = (struct store_share){.tenant_id = 99}; /* not in the database */
    assert_ok_err(store_share_put(w->a, x, &err), &err);
    assert_int_equal(number(w->a, "SELECT count(*) FROM tenant_share"), 2);
    assert_text(w->a,
                "SELECT max_gpus::text || ' ' || (usage_ns = 1e18::float8 / 3) FROM "
                "tenant_share WHERE tenant_id = 2",
                "3 true");
    assert_text(w->a, "SELECT max_gpus IS NULL FROM tenant_share WHERE tenant_id = 1", "t");
    x->n = 1;
    x->rows[0].running_gpus = 2;
    assert_ok_err(store_share_put(w->a, x, &err), &err);
    assert_int_equal(number(w->a, "SELECT running_gpus::int FROM tenant_share WHERE tenant_id = 1"),
                     2);
    assert_int_equal(number(w->a, "SELECT count(*) FROM tenant_share"), 2);
    x->fence.epoch--;
    assert_fails(store_share_put(w->a, x, &err), SH_E_PRECONDITION, &err, "no longer ours");
    free(x);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_share_replaces_the_row_before_and_a_replaced_leader_shows_nothing),
        TEST(only_one_of_two_holds_the_lease),
        TEST(a_lease_that_ended_is_taken_with_the_next_epoch_and_not_renewed),
        TEST(a_lease_that_ended_and_was_not_taken_can_be_renewed),
        TEST(a_lease_that_was_given_back_is_free_at_once),
        TEST(a_start_gives_all_that_the_executor_needs_and_one_event),
        TEST(a_start_that_is_repeated_after_a_lost_commit_happens_once),
        TEST(a_start_after_the_user_cancelled_changes_nothing),
        TEST(a_job_whose_dataset_is_gone_fails_with_the_reason),
        TEST(a_reason_that_is_too_long_is_cut_between_two_characters),
        TEST(every_change_has_its_event_in_order),
        TEST(changes_from_another_state_write_nothing_and_say_what_it_is),
        TEST(a_chain_that_breaks_in_the_middle_leaves_no_trace),
        TEST(success_makes_the_next_version_in_the_same_transaction),
        TEST(success_that_is_repeated_makes_one_version),
        TEST(only_the_alias_that_its_user_names_stands_for_the_new_version),
        TEST(success_of_a_deleted_model_makes_no_version),
        TEST(a_version_that_cannot_be_made_leaves_the_job_as_it_was),
        TEST(a_failure_keeps_its_code_and_text_and_a_requeued_job_has_no_executor),
        TEST(a_wish_to_suspend_wins_over_every_way_back_to_the_queue),
        TEST(a_requeued_job_goes_behind_its_equals_and_others_keep_their_place),
        TEST(what_it_has_had_is_written_when_it_waits_and_without_levels_all_of_it_goes),
        TEST(a_wish_outlives_a_change_that_keeps_the_executor),
        TEST(a_checkpoint_that_was_asked_for_is_answered_once),
        TEST(an_evaluation_stays_until_there_is_another),
        TEST(a_back_off_is_in_the_row_until_the_next_start),
        TEST(what_has_ended_stays_as_it_ended),
        TEST(the_scheduler_reads_what_a_client_asks),
        TEST(a_leader_that_was_replaced_can_write_and_read_nothing),
        TEST(the_same_epoch_with_another_holder_is_refused_too),
        TEST(a_version_that_is_ready_or_deleted_does_not_change_its_state),
        TEST(only_queued_jobs_get_a_reason_to_wait),
        TEST(the_view_holds_tenants_models_jobs_and_decayed_usage),
        TEST(deleted_models_and_finished_jobs_are_not_in_the_view),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
