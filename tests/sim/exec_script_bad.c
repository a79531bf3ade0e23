/* exec_script_bad.c - see exec_script.h: what a scheduler or a client should not have sent. Each is
 * refused with its reason, in its own name, and changes nothing for others.
 *
 * Numbers of such runs, requests, versions and jobs are from BAD on; a job that is refused at once
 * has one below 1 perhaps. */
#include "common/mem.h"
#include "common/msg.h"
#include "common/safetensors.h"
#include "common/units.h"
#include "executor/batch/batch_int.h"
#include "executor/runs/switch_int.h"
#include "tests/sim/disk.h"
#include "tests/sim/exec_script.h"
#include "tests/sim/shortage.h"

#include <inttypes.h>
#include <stdio.h>

#define BAD INT64_C(1000000)
#define MAX_WAITS 64u
#define ABSENT "00000000000000000000000000000000000000000000000000000000000000aa"
#define WAITS_NS SH_S(400) /* a job is tried again for a while where memory is short */

static struct wait { /* for a refusal */
    uint16_t type;   /* of the answer; 0: none */
    int64_t id, since_ns;
    uint64_t n_short;
    int rc; /* that is right beside those for now (sh_rc_retry); 0: any */
} waits[MAX_WAITS];
static int64_t last, last_job, last_job_ns;
static char datasets[6][96];

/* ------------------------------------------------------------------ who waits for what */

static struct wait *wait_of(uint16_t type, int64_t id)
{
    for (size_t i = 0; i < MAX_WAITS; i++)
        if (waits[i].type == type && (type == 0 || waits[i].id == id))
            return &waits[i];
    return NULL;
}

static void expect(uint16_t type, int64_t id, int rc)
{
    struct wait *w = wait_of(0, 0);

    if (w)
        *w = (struct wait){type, id, sim_now(), sim_shortage_n(), rc};
}

/* What came before the connection was lost is not known. */
void script__bad_hello(void)
{
    memset(waits, 0, sizeof(waits));
}

static bool take(uint16_t type, int64_t id, bool is_refusal, int64_t rc, const char *msg)
{
    struct wait *w = wait_of(type, id);

    if (!w)
        return id >= BAD || id <= 0; /* said before we connected, or twice */
    if (is_refusal) {
        SIM_CHECK("refusals", w->rc == 0 || rc == w->rc || sh_rc_retry((int)rc),
                  "%s of %" PRId64 ": %s (%s), and not %s", sh_msg_name(type), id,
                  sh_rc_name((int)rc), msg, sh_rc_name(w->rc));
        SIM_CHECK("refusals", rc < 0 && (msg[0] || w->n_short != sim_shortage_n()),
                  "%s of %" PRId64 " gives no reason", sh_msg_name(type), id);
        w->type = 0;
    }
    return true;
}

bool script__bad_on(const struct sh_msg *m)
{
    switch (m->type) {
    case MSG_RUN_DONE:
        return (int64_t)m->u.run_done.run_id >= BAD &&
               take(MSG_RUN_DONE, (int64_t)m->u.run_done.run_id, true, m->u.run_done.rc,
                    m->u.run_done.msg);
    case MSG_MODEL_STATE:
        return take(MSG_MODEL_STATE, m->u.model_state.version_id,
                    m->u.model_state.state == MSG_MODEL_FAILED, m->u.model_state.rc,
                    m->u.model_state.msg);
    case MSG_SHAPE_STATE:
        return take(MSG_SHAPE_STATE, m->u.shape_state.version_id,
                    m->u.shape_state.state == MSG_MODEL_FAILED, m->u.shape_state.rc,
                    m->u.shape_state.msg);
    case MSG_JOB_STATE:
        SIM_CHECK("refusals", m->u.job_state.job < BAD || m->u.job_state.state != MSG_JOB_DONE,
                  "job %" PRId64 " is done, which cannot be", m->u.job_state.job);
        if (m->u.job_state.state == MSG_JOB_CANCELLED && wait_of(MSG_JOB_STATE, m->u.job_state.job))
            wait_of(MSG_JOB_STATE, m->u.job_state.job)->type = 0;
        return take(MSG_JOB_STATE, m->u.job_state.job, m->u.job_state.state == MSG_JOB_FAILED,
                    m->u.job_state.rc, m->u.job_state.msg);
    default:
        return m->type == MSG_JOB_CHECKPOINT && m->u.job_checkpoint.job >= BAD;
    }
}

bool script__bad_are_through(bool check)
{
    for (size_t i = 0; i < MAX_WAITS; i++) {
        const struct wait *w = &waits[i];
        const bool is_open = w->type && w->n_short == sim_shortage_n();

        SIM_CHECK("refusals", !check || !is_open || sim_now() - w->since_ns < WAITS_NS,
                  "%s of %" PRId64 " never came", sh_msg_name(w->type), w->id);
        if (is_open && !check)
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------ runs */

static void part(uint64_t run, uint32_t batch, struct sh_blob in, struct sh_blob out)
{
    struct sh_msg m = {.type = MSG_RUN_PART};

    m.u.run_part = (struct msg_run_part){.run_id = run,
                                         .rid = (uint64_t)BAD + run,
                                         .api_id = sim_below(3) ? script__api_id() : 1,
                                         .batch = batch,
                                         .in_spans = in,
                                         .out_spans = out};
    script__send(&m);
}

/* Parts of a run that is good otherwise: what they say of the slab. */
static void bad_parts(uint64_t run, uint32_t how, int *rc, uint32_t *n_parts)
{
    static const struct msg_span NONE[RUN_MAX_SPANS + 1],
        LARGE[] = {{0, (uint64_t)80 << 20}, {0, (uint64_t)40 << 30}, {0, (uint64_t)60 << 30}};
    const struct msg_span far = {UINT64_MAX - 8, 64}, odd = {64, 7}, fine = {0, 64};
    const struct sh_blob one = {&fine, sizeof(fine)};

    *n_parts = 1;
    switch (how) {
    case 0:
        part(run, 1, (struct sh_blob){&far, sizeof(far)}, one);
        return;
    case 1:
        part(run, 1, one, (struct sh_blob){&far, sizeof(far)});
        return;
    case 2:
        part(run, 1, (struct sh_blob){NONE, 2 * sizeof(NONE[0])}, one);
        return;
    case 3:
        part(run, 1, (struct sh_blob){&odd, sizeof(odd)}, (struct sh_blob){&odd, sizeof(odd)});
        return;
    case 4: /* none, and no memory for more of them */
        part(run, 1, (struct sh_blob){NULL, 0}, (struct sh_blob){NONE, 200 * sizeof(NONE[0])});
        return;
    case 5:
        part(run, 1, (struct sh_blob){NONE, sizeof(NONE)}, one);
        break;
    case 6:
        part(run, 1, (struct sh_blob){NONE, 5}, one);
        break;
    case 7:
        part(run, 0, one, one);
        break;
    case 8: /* more than is kept of memory, and more than there can be */
        part(run, 1, (struct sh_blob){LARGE, (1 + sim_below(3)) * sizeof(LARGE[0])}, one);
        return;
    case 9:
        *n_parts = (uint32_t)sim_below(2);
        if (*n_parts == 0)
            part(run, 1, one, one);
        break;
    default:
        *n_parts = SWITCH_MAX_PARTS + 1;
        *rc = SH_E_TOOBIG;
        return;
    }
    *rc = SH_E_PROTO;
}

static void bad_run(void)
{
    static const uint32_t SIZES[3] = {0, 5, 7};
    const uint64_t id = (uint64_t)(BAD + ++last);
    const bool is_whole = sim_below(4) == 0; /* the run itself is wrong */
    struct sh_msg m = {.type = MSG_RUN};
    uint32_t n_parts = 0;
    int rc = 0;

    if (!is_whole)
        bad_parts(id, (uint32_t)sim_below(11), &rc, &n_parts);
    m.u.run = (struct msg_run){.epoch = script__epoch(),
                               .run_id = id,
                               .version_id = script__version_id(sim_below(8)),
                               .tenant = "ann",
                               .batch = 1,
                               .n_parts = n_parts,
                               .budget_ns = SH_S(5)};
    if (is_whole) {
        const struct msg_span fine = {0, 64};

        m.u.run.n_parts = 1;
        m.u.run.batch = sim_below(2) ? 1 : 5000;
        part(id, m.u.run.batch, (struct sh_blob){&fine, sizeof(fine)},
             (struct sh_blob){&fine, sizeof(fine)});
        if (sim_below(2)) /* one more than is said */
            part(id, 1, (struct sh_blob){NULL, 0}, (struct sh_blob){NULL, 0});
        if (m.u.run.batch == 1)
            m.u.run.sizes = (struct sh_blob){SIZES + sim_below(2), 1 + 4 * sim_below(3)};
        if (m.u.run.batch == 1 && sim_below(3) == 0) {
            m.u.run.version_id = BAD;
            m.u.run.sizes = (struct sh_blob){0};
        }
    }
    expect(MSG_RUN_DONE, (int64_t)id, is_whole ? 0 : rc);
    script__send(&m);
}

/* ------------------------------------------------------------------ models */

static void bad_load(void)
{
    static const struct {
        int64_t id;
        uint32_t max_batch;
        const char *package;
        int rc;
    } CASES[] = {
        {0, 1, "packages/x", SH_E_INVALID},          {-5, 1, "packages/x", SH_E_INVALID},
        {INT64_MAX, 1, "packages/x", SH_E_INVALID},  {BAD + 1, 0, "packages/x", SH_E_INVALID},
        {BAD + 2, 1025, "packages/x", SH_E_INVALID}, {BAD + 3, 1, "packages/none", 0},
        {BAD + 5, 1, "packages/" ABSENT, 0},         {BAD + 4, 1, "../../etc", 0},
    };
    const size_t i = sim_below(SH_ARRAY_LEN(CASES));
    struct sh_msg m = {.type = MSG_MODEL_LOAD}, un = {.type = MSG_MODEL_UNLOAD};

    m.u.model_load = (struct msg_model_load){.epoch = script__epoch(),
                                             .version_id = CASES[i].id,
                                             .tenant = "ben",
                                             .model = "m",
                                             .package = CASES[i].package,
                                             .max_batch = CASES[i].max_batch,
                                             .precision = ""};
    un.u.model_unload =
        (struct msg_model_unload){.epoch = script__epoch(), .version_id = BAD + 3 + (i & 1)};
    script__send(&un); /* of an earlier time, or of none */
    expect(MSG_MODEL_STATE, CASES[i].id, CASES[i].rc);
    script__send(&m);
}

static void bad_shape(void)
{
    static const uint32_t SIZES[40] = {5};
    static const size_t LENGTHS[] = {3, 4, 8, sizeof(SIZES)};
    struct sh_msg m = {.type = MSG_SHAPE_LOAD}, pin = {.type = MSG_MODEL_PIN};

    m.u.shape_load = (struct msg_shape_load){.epoch = script__epoch(),
                                             .version_id = BAD + ++last,
                                             .sizes = {SIZES, LENGTHS[sim_below(4)]}};
    pin.u.model_pin = (struct msg_model_pin){.epoch = script__epoch(), .version_id = BAD};
    script__send(&pin);
    expect(MSG_SHAPE_STATE, BAD + last, 0);
    script__send(&m);
}

static void bad_share(void)
{
    static const double SHARES[] = {-1, 0, 1e300, 1};
    struct sh_msg m = {.type = MSG_TENANT_MEMORY};

    m.u.tenant_memory = (struct msg_tenant_memory){.epoch = script__epoch(),
                                                   .tenant = "dan",
                                                   .min_bytes = sim_below(2) ? UINT64_MAX : 9,
                                                   .max_bytes = sim_below(2) ? 1 : UINT64_MAX,
                                                   .share = SHARES[sim_below(4)],
                                                   .host_max_bytes = sim_below(2)};
    script__send(&m);
}

/* ------------------------------------------------------------------ jobs */

static void wait_for_job(int64_t id)
{
    expect(MSG_JOB_STATE, id, 0);
    last_job = id;
    last_job_ns = sim_now();
}

#define SPEC(more)                                                                        \
    "{\"loss\":\"cross-entropy\",\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},\"labels\":" \
    "\"label\"," more "}"

static void bad_training(void)
{
    static const struct {
        const char *spec, *package, *dataset, *dir, *resume;
        int64_t id; /* 0: a new one */
    } CASES[] = {
        {SPEC("\"batch\":1,\"steps\":1"), "p", "d", "9", "", -3},
        {"{", "p", "d", "9", "", 0},
        {SPEC("\"evaluation\":{\"every\":5}"), "p", "d", "9", "", 0},
        {SPEC("\"evaluation\":7"), "p", "d", "9", "", 0},
        {SPEC("\"precision\":5,\"checkpoint_interval_ms\":-4"), "../x", "d", "9", "", 0},
        {SPEC("\"steps\":1"), "p", "../x", "9", "", 0},
        {SPEC("\"steps\":1"), "p", "d", "../../9", "", 0},
        {SPEC("\"steps\":1"), "p", "d", "9", "../../9", 0},
        {SPEC("\"steps\":1,\"precision\":\"tf32\",\"checkpoint_interval_ms\":99999999999999999"),
         "packages/none", "datasets/none", "91", "", 0},
        {SPEC("\"steps\":1"), "packages/" ABSENT, "datasets/" ABSENT ".safetensors", "94",
         "94/ckpt-000000000005.safetensors", 0},
        {SPEC("\"steps\":1,\"checkpoint_interval_ms\":-1"), "packages/none", "datasets/none",
         "no/92", "", 0},
    };
    const size_t i = sim_below(SH_ARRAY_LEN(CASES));
    struct sh_msg m = {.type = MSG_JOB_START};

    m.u.job_start = (struct msg_job_start){.epoch = script__epoch(),
                                           .placement = sim_now() / 1000,
                                           .job = CASES[i].id ? CASES[i].id : BAD + ++last,
                                           .attempt = 1,
                                           .tenant = "cyd",
                                           .model = "m",
                                           .package = CASES[i].package,
                                           .dataset = CASES[i].dataset,
                                           .eval_dataset = "",
                                           .spec = CASES[i].spec,
                                           .dir = CASES[i].dir,
                                           .resume = CASES[i].resume,
                                           .about = ""};
    wait_for_job(m.u.job_start.job);
    script__send(&m);
}

#define IO(name, type) "[{\"name\":\"" name "\",\"datatype\":\"" type "\",\"shape\":[-1,16]}]"
#define FINE_IN IO("input", "FP32")
#define FINE_OUT IO("output", "FP32")

static void bad_batch(void)
{
    static const char *const MANY =
        "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
        "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]";
    const struct {
        const char *inputs, *outputs, *dataset, *spec, *dir;
        int64_t resume;
    } cases[] = {
        {FINE_IN, FINE_OUT, datasets[0], "{}", "93", -1},
        {"[", FINE_OUT, datasets[0], "{}", "93", 0},
        {FINE_IN, "[", datasets[0], "{}", "93", 0},
        {FINE_IN, FINE_OUT, datasets[0], "{", "93", 0},
        {FINE_IN, FINE_OUT, datasets[0], "{\"batch\":\"many\"}", "93", 0},
        {FINE_IN, FINE_OUT, "../x", "{}", "93", 0},
        {FINE_IN, FINE_OUT, datasets[0], "{}", "../93", 0},
        {FINE_IN, FINE_OUT, datasets[0], "{}", "no/93", 0},
        {FINE_IN, FINE_OUT, datasets[0], "{\"batch\":1000}", "93", 0},
        {FINE_IN, FINE_OUT, "datasets/none", "{}", "93", 0},
        {FINE_IN, FINE_OUT, "datasets/" ABSENT ".safetensors", "{}", "93", 0},
        {"[]", FINE_OUT, datasets[0], "{}", "93", 0},
        {MANY, FINE_OUT, datasets[0], "{}", "93", 0},
        {"[1]", FINE_OUT, datasets[0], "{}", "93", 0},
        {IO("input", "FP8"), FINE_OUT, datasets[0], "{}", "93", 0},
        {IO("input", "INT32"), FINE_OUT, datasets[0], "{}", "93", 0},
        {IO("x", "FP32"), FINE_OUT, datasets[0], "{}", "93", 0},
        {FINE_IN, FINE_OUT, datasets[0], "{\"inputs\":{\"input\":\"y\"}}", "93", 0},
        {FINE_IN, FINE_OUT, datasets[1], "{}", "93", 0},
        {FINE_IN, FINE_OUT, datasets[2], "{}", "93", 0},
        {FINE_IN, FINE_OUT, datasets[3], "{}", "93", 0},
        {"[{\"name\":\"input\",\"datatype\":\"FP32\",\"shape\":[-1,16]},"
         "{\"name\":\"few\",\"datatype\":\"FP32\",\"shape\":[-1,16]}]",
         FINE_OUT, datasets[4], "{}", "93", 0},
        {FINE_IN, "[]", datasets[0], "{}", "93", 0},
        {FINE_IN, MANY, datasets[0], "{}", "93", 0},
        {FINE_IN, "[1]", datasets[0], "{}", "93", 0},
        {FINE_IN, FINE_OUT, datasets[0], "{\"outputs\":[\"none\"]}", "93", 0},
        {FINE_IN, FINE_OUT, datasets[0], "{\"outputs\":[\"output\",\"none\"]}", "93", 0},
        {FINE_IN, "[{\"name\":\"output\",\"datatype\":\"FP32\",\"shape\":[-1,900000000000]}]",
         datasets[0], "{}", "93", 0},
    };
    const size_t i = sim_below(SH_ARRAY_LEN(cases));
    struct sh_msg m = {.type = MSG_BATCH_START};

    m.u.batch_start = (struct msg_batch_start){.epoch = script__epoch(),
                                               .placement = sim_now() / 1000,
                                               .job = BAD + ++last,
                                               .attempt = 1,
                                               .tenant = "cyd",
                                               .model = "m",
                                               .version_id = script__version_id(sim_below(8)),
                                               .inputs = cases[i].inputs,
                                               .outputs = cases[i].outputs,
                                               .dataset = cases[i].dataset,
                                               .spec = cases[i].spec,
                                               .dir = cases[i].dir,
                                               .resume_step = cases[i].resume,
                                               .resume_digest = "",
                                               .about = ""};
    wait_for_job(BAD + last);
    script__send(&m);
}

/* It would wait for its model, and others for it. */
static void cancel_job(void)
{
    struct sh_msg m = {.type = MSG_JOB_STOP};

    m.u.job_stop = (struct msg_job_stop){
        .epoch = script__epoch(), .job = last_job, .attempt = 1, .how = MSG_JOB_HOW_CANCEL};
    script__send(&m);
    last_job = 0;
}

static void bad_word(void)
{
    struct sh_msg stop = {.type = MSG_JOB_STOP}, save = {.type = MSG_JOB_SAVE};
    struct sh_msg cancel = {.type = MSG_RUN_CANCEL}, none = {.type = MSG_EXEC_SYNCED};

    stop.u.job_stop = (struct msg_job_stop){
        .epoch = script__epoch(), .job = BAD, .attempt = 1, .how = MSG_JOB_HOW_CANCEL};
    save.u.job_save =
        (struct msg_job_save){.epoch = script__epoch(), .job = BAD, .attempt = 1, .asked = 1};
    cancel.u.run_cancel = (struct msg_run_cancel){.run_id = (uint64_t)BAD, .api_id = 1, .rid = 1};
    script__send(&stop);
    script__send(&save);
    script__send(&cancel);
    script__send(&none);
}

/* ------------------------------------------------------------------ the whole */

static void make(size_t at, const char *name, enum sh_dtype dtype, int64_t n, int64_t width)
{
    static const float data[64 * 16];
    struct sh_st_tensor t[] = {
        {.name = name, .dtype = dtype, .rank = 2, .dims = {n, width}, .data = data},
        {.name = "few", .dtype = SH_F32, .rank = 2, .dims = {1, 16}, .data = data, .bytes = 64}};
    char path[160];

    t[0].bytes = (size_t)(n * width) * sh_dtype_bytes(dtype);
    snprintf(datasets[at], sizeof(datasets[at]), "datasets/bad-%zu.safetensors", at);
    snprintf(path, sizeof(path), "%s/blobs/%s", script.e->state_dir, datasets[at]);
    sim_disk_spare(true);
    if (sh_st_write(path, t, SH_ARRAY_LEN(t), NULL, NULL))
        sim_broken("world", "could not write %s", path);
    sim_disk_spare(false);
}

void script__bad_begin(void)
{
    last = 100;
    make(0, "input", SH_F32, 3, 16);
    make(1, "input", SH_F32, 0, 16);
    make(2, "input", SH_F32, 3, 15);
    make(3, "input", SH_I32, 3, 16);
    make(4, "input", SH_F32, 4, 16);
}

void script__bad_tick(void)
{
    static void (*const KINDS[])(void) = {bad_run,      bad_run,   bad_load, bad_shape,
                                          bad_training, bad_batch, bad_word, bad_share};

    if (last_job && sim_now() - last_job_ns > SH_MS(400))
        cancel_job();
    if (script__jobs_are_idle() && sim_below(6) == 0) /* else it is refused for the other job */
        KINDS[4 + sim_below(2)]();
    if (sim_below(12) == 0)
        KINDS[sim_below(SH_ARRAY_LEN(KINDS))]();
}
