/* worker_lies.c - what a simulated worker says that is not so: of its job, its model, its memory,
 * itself. An executor refuses it, or kills the worker; what is done for others stays right. A lie
 * that would make the worker itself compute something wrong is none of these. */
#include "common/mem.h"
#include "executor/models/store.h"
#include "executor/pool/pool.h"
#include "tests/sim/worker_int.h"

#include <math.h>

static struct sh_blob cut(struct sh_blob b, size_t n)
{
    return (struct sh_blob){b.data, b.len - SH_MIN(n, b.len)};
}

/* A copy of a table in which the entry `at` is another one; OF this call, until the next. */
static struct sh_blob changed(struct sh_blob b, size_t at, const void *entry, size_t n)
{
    static char copy[1 << 16];

    if (b.len > sizeof(copy) || n > b.len || at > b.len - n)
        return b;
    memcpy(copy, b.data, b.len);
    memcpy(copy + at, entry, n);
    return (struct sh_blob){copy, b.len};
}

static struct sh_blob long_table(size_t n)
{
    static const char zeroes[1 << 20];

    return (struct sh_blob){zeroes, SH_MIN(n, sizeof(zeroes))};
}

/* Where that is believed, it is given tables that its plan has not. */
static void of_n_tables(struct sim_worker *w, struct msg_wk_model_done *d)
{
    struct worker_model *m = worker__model(w, d->handle);

    d->n_tables += 1 + (uint32_t)sim_below(100);
    if (m)
        m->has_lied = true;
}

static void of_model(struct sim_worker *w, struct msg_wk_model_done *d, size_t *n_fds)
{
    static const double TIMES[] = {NAN, -1, 1e16};
    static const uint64_t FAR = UINT64_MAX / 2;
    static const uint32_t NO_SIZE;
    const bool is_first = *n_fds > 0; /* the others are not asked for all of it */

    switch (sim_below(17)) {
    case 0:
        d->handle += 1 + (int64_t)sim_below(3);
        return;
    case 1:
        d->image_bytes++;
        return;
    case 2:
        d->layer_ends = cut(d->layer_ends, 1 + sim_below(8));
        return;
    case 3:
        d->layer_ends = changed(d->layer_ends, 0, &FAR, sizeof(FAR));
        return;
    case 4:
        d->layer_ns = changed(d->layer_ns, 0, &TIMES[sim_below(3)], sizeof(TIMES[0]));
        return;
    case 5:
        d->layer_ns = cut(d->layer_ns, is_first ? 8 : 0);
        return;
    case 6:
        d->batches = cut(d->batches, 1);
        return;
    case 7:
        d->batches.len = 0;
        return;
    case 8:
        d->batches = long_table((MODEL_MAX_BATCHES + 1) * sizeof(struct msg_batch));
        return;
    case 9: /* none, or the first once more */
        d->batches = changed(d->batches, d->batches.len - sizeof(struct msg_batch),
                             sim_below(2) ? &(struct msg_batch){0} : d->batches.data,
                             sizeof(struct msg_batch));
        return;
    case 10:
        d->input_offs = is_first ? cut(d->input_offs, 1) : changed(d->input_offs, 0, &FAR, 8);
        return;
    case 11:
        d->sizes = cut((struct sh_blob){"12345678", 8}, 1 + sim_below(3));
        return;
    case 12:
        d->sizes = sim_below(2) ? (struct sh_blob){&NO_SIZE, sizeof(NO_SIZE)} : long_table(400);
        return;
    case 13:
        d->layer_ends = long_table(70000 * sizeof(uint64_t));
        return;
    case 14:
        d->host_bytes = FAR;
        return;
    case 15:
        of_n_tables(w, d);
        return;
    default:
        *n_fds = 0;
    }
}

static void of_tables(struct msg_wk_tables_done *d)
{
    switch (sim_below(3)) {
    case 0:
        d->handle = -d->handle;
        return;
    case 1:
        d->turn++;
        return;
    default:
        d->rc = SH_E_IO;
    }
}

static void of_run(struct msg_wk_run_done *d)
{
    switch (sim_below(4)) {
    case 0:
        d->turn ^= 1;
        return;
    case 1: /* as to more, the worker itself would unpack what is no more there */
        d->packed = sim_below(2) ? MSG_PACKED_DAMAGED : MSG_PACKED_UNSURE;
        return;
    case 2:
        d->end_ns = INT64_MAX - 1;
        d->first_ns = -5;
        return;
    default:
        d->start_ns = INT64_MIN / 2;
        d->wait_ns = INT64_MAX;
    }
}

static void of_job(struct msg_wk_train_ready *d, size_t *n_fds)
{
    static const char *const TABLES[] = {
        "[",
        "[{\"name\":\"t0\"}]",
        "[{\"name\":\"t0\",\"dtype\":\"F7\",\"shape\":[1],\"off\":0,\"bytes\":8}]",
        "[{\"name\":\"t0\",\"dtype\":\"F32\",\"shape\":[1],\"off\":900000000000,\"bytes\":8}]",
        "[{\"name\":\"t0\",\"dtype\":\"F32\",\"shape\":[1],\"off\":0,\"bytes\":900000000000}]",
    };

    switch (sim_below(8)) {
    case 6: /* steps write what is not there, or nothing */
        d->written_bytes = sim_below(2) ? d->state_bytes + 8 : 0;
        return;
    case 7: /* or other parts than the first has said */
        d->written_bytes -= *n_fds == 0 ? 8 : 0;
        return;
    case 0:
        d->job ^= 1;
        return;
    case 1: /* of another size than the first has made; who makes it says what it is */
        d->state_bytes += *n_fds == 0 ? 8 : 0;
        return;
    case 2:
        d->steps = 0;
        return;
    case 3:
        d->batch++;
        *n_fds = 0;
        return;
    default:
        d->table = TABLES[sim_below(SH_ARRAY_LEN(TABLES))];
    }
}

/* Of a job that it does not have, if it is of one. */
static struct sh_msg of_another_job(const struct sh_msg *m)
{
    struct sh_msg other = *m;

    switch (m->type) {
    case MSG_WK_TRAIN_STOPPED:
        other.u.wk_train_stopped.job++;
        break;
    case MSG_WK_TRAIN_LOSSES:
        other.u.wk_train_losses.job++;
        break;
    case MSG_WK_TRAIN_EVAL:
        other.u.wk_train_eval.job++;
        break;
    case MSG_WK_TRAIN_CKPT:
        other.u.wk_train_ckpt.job++;
        break;
    default:
        break;
    }
    return other;
}

void worker__note_end(struct sim_worker *w, const struct sh_msg *m)
{
    if (m->type == MSG_WK_RUN_DONE) {
        w->ended = *m;
        w->ended.u.wk_run_done.msg = "";
    } else if (m->type == MSG_WK_TRAIN_STOPPED) {
        w->ended = *m;
        w->ended.u.wk_train_stopped.msg = "";
    }
}

/* Said twice, of what is not there, or no answer. */
struct sh_msg worker__stray(const struct sh_msg *m)
{
    struct sh_msg stray = {.type = sim_below(2) ? MSG_WELCOME : MSG_WK_PART_FAILED};

    if (sim_below(3))
        return sim_below(2) ? *m : of_another_job(m);
    if (stray.type == MSG_WELCOME)
        stray.u.welcome.name = "worker";
    else
        stray.u.wk_part_failed = (struct msg_wk_part_failed){.part = UINT32_MAX, .msg = ""};
    return stray;
}

void worker__lie(struct sim_worker *w, struct sh_msg *m, size_t *n_fds)
{
    static double losses[3] = {NAN, 1, 2};

    switch (m->type) {
    case MSG_WK_READY:
        m->u.wk_ready.fences = (uint32_t)sim_below(MSG_FENCES + 1);
        m->u.wk_ready.why = "the simulated kernel has none";
        return;
    case MSG_WK_MODEL_DONE:
        of_model(w, &m->u.wk_model_done, n_fds);
        return;
    case MSG_WK_TABLES_DONE: /* not that it can read them: it would be told to */
        of_tables(&m->u.wk_tables_done);
        return;
    case MSG_WK_RUN_DONE:
        of_run(&m->u.wk_run_done);
        return;
    case MSG_WK_TRAIN_READY:
        of_job(&m->u.wk_train_ready, n_fds);
        return;
    case MSG_WK_TRAIN_STOPPED:
        m->u.wk_train_stopped.rc = SH_E_DEVLOST; /* and does not end */
        return;
    case MSG_WK_TRAIN_CKPT:
        m->u.wk_train_ckpt.ticket_slot++;
        return;
    case MSG_WK_TRAIN_EVAL:
        m->u.wk_train_eval.step++;
        return;
    case MSG_WK_TRAIN_LOSSES:
        m->u.wk_train_losses.first_step = sim_below(2) ? -2 : INT64_MAX / 2;
        m->u.wk_train_losses.losses = (struct sh_blob){losses, sizeof(losses)};
        return;
    default:
        return;
    }
}
