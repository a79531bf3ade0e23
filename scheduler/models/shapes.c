/* shapes.c - see shapes.h. */
#include "scheduler/models/shapes.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"
#include "scheduler/route.h"
#include "scheduler/sched.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#define MAX_WAIT_NS SH_S(3600)
#define ASK_AGAIN_NS SH_S(60) /* an answer that does not come */

static int read_size_blob(struct sh_blob b, struct sh_sizes *out, struct sh_err *err)
{
    *out = (struct sh_sizes){.n = (uint32_t)(b.len / sizeof(out->v[0]))};
    if (b.len % sizeof(out->v[0]) || out->n < 1 || out->n > SH_MAX_SYMBOLS)
        return SH_FAIL(err, SH_E_PROTO, "a list of %zu bytes of sizes", b.len);
    memcpy(out->v, b.data, b.len);
    return SH_OK;
}

static struct shape *find_shape(const struct model *m, const struct sh_sizes *sizes)
{
    for (struct shape *h = m->shapes; h; h = h->next)
        if (memcmp(&h->sizes, sizes, sizeof(*sizes)) == 0)
            return h;
    return NULL;
}

/* Forgets the one that nobody has asked for, for the longest time. */
static bool forget_one_shape(struct model *m)
{
    struct shape **oldest = NULL, *h;

    for (struct shape **at = &m->shapes; *at; at = &(*at)->next)
        if ((*at)->n_users == 0 && (!oldest || (*at)->asked_ns < (*oldest)->asked_ns))
            oldest = at;
    if (!oldest)
        return false;
    h = *oldest;
    *oldest = h->next;
    m->n_shapes--;
    free(h->on);
    free(h);
    return true;
}

static int get_shape(const struct sched *s, struct model *m, struct sh_blob sizes,
                     struct shape **out, struct sh_err *err)
{
    struct sh_sizes z;
    int rc = read_size_blob(sizes, &z, err);

    *out = NULL;
    if (rc)
        return rc;
    *out = find_shape(m, &z);
    if (*out)
        return SH_OK;
    if (m->n_shapes >= SHAPES_MAX && !forget_one_shape(m))
        return SH_FAIL(err, SH_E_QUEUEFULL,
                       "requests of %u shapes of \"%s\" are in progress; try again", SHAPES_MAX,
                       m->name);
    *out = calloc(1, sizeof(**out));
    if (*out)
        (*out)->on = calloc(s->execs.cap + 1, sizeof(*(*out)->on));
    if (!*out || !(*out)->on) {
        free(*out);
        *out = NULL;
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a shape of a model");
    }
    (*out)->model = m;
    (*out)->sizes = z;
    (*out)->asked_ns = sh_clock_ns();
    (*out)->next = m->shapes;
    m->shapes = *out;
    m->n_shapes++;
    return SH_OK;
}

int shapes_use(const struct sched *s, struct model *m, struct sh_blob sizes, struct shape **out,
               struct sh_err *err)
{
    int rc = get_shape(s, m, sizes, out, err);

    if (rc)
        return rc;
    (*out)->n_users++;
    (*out)->asked_ns = sh_clock_ns();
    return SH_OK;
}

void shapes_release(struct shape *h)
{
    if (h)
        h->n_users--;
}

static void ask_for_shape(struct sched *s, struct shape *h, struct exec *e, int64_t now)
{
    session_send(
        e->session,
        &(struct sh_msg){.type = MSG_SHAPE_LOAD,
                         .u.shape_load = {.epoch = s->epoch,
                                          .version_id = h->model->version_id,
                                          .sizes = {h->sizes.v, h->sizes.n * sizeof(uint32_t)}}});
    h->on[e->index].phase = SHAPE_ASKED;
    h->on[e->index].asked_ns = now;
}

int shapes_read_warm(struct model *m, const char *text, struct sh_err *err)
{
    json_t *all = text ? json_loads(text, 0, NULL) : NULL, *one, *size;
    size_t i, k;

    m->warm = json_array_size(all) ? calloc(SHAPES_MAX_WARM, sizeof(*m->warm)) : NULL;
    if (json_array_size(all) && !m->warm) {
        json_decref(all);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the shapes of a model");
    }
    json_array_foreach(all, i, one)
    {
        struct sh_sizes z = {.n = (uint32_t)json_array_size(one)};

        if (m->n_warm == SHAPES_MAX_WARM || z.n < 1 || z.n > SH_MAX_SYMBOLS)
            continue;
        json_array_foreach(one, k, size)
        {
            z.v[k] = (uint32_t)json_integer_value(size);
        }
        m->warm[m->n_warm++] = z;
    }
    json_decref(all);
    return SH_OK;
}

void shapes_warm(struct sched *s, struct model *m, struct exec *e)
{
    for (size_t i = 0; i < m->n_warm; i++) {
        const struct sh_blob sizes = {m->warm[i].v, m->warm[i].n * sizeof(uint32_t)};
        struct shape *h;

        if (get_shape(s, m, sizes, &h, NULL) == SH_OK && h->on[e->index].phase == SHAPE_ABSENT)
            ask_for_shape(s, h, e, sh_clock_ns());
    }
}

bool shapes_cannot(const struct sched *s, const struct shape *h)
{
    bool any = false;

    for (size_t i = 0; i < s->execs.n; i++) {
        const struct exec *e = s->execs.items[i];

        if (!exec_is_up(e) || h->model->on[e->index].phase != MODEL_ON_READY)
            continue;
        if (h->on[e->index].phase != SHAPE_FAILED)
            return false;
        any = true;
    }
    return any;
}

bool shapes_waits(struct sched *s, struct shape *h)
{
    const int64_t now = sh_clock_ns();
    bool ready = false, any = false;

    for (size_t i = 0; i < s->execs.n; i++) {
        struct exec *e = s->execs.items[i];
        struct shape_on *on = &h->on[e->index];

        if (!exec_is_up(e) || h->model->on[e->index].phase != MODEL_ON_READY)
            continue;
        if (on->phase == SHAPE_ABSENT ||
            (on->phase == SHAPE_ASKED && now - on->asked_ns > ASK_AGAIN_NS))
            ask_for_shape(s, h, e, now);
        any = true;
        ready |= on->phase == SHAPE_READY;
    }
    return any && !ready;
}

/* Is nobody left who has it, or may have it soon? */
static bool is_hopeless(const struct sched *s, const struct shape *h)
{
    for (size_t i = 0; i < s->execs.n; i++) {
        const enum shape_phase p = h->on[s->execs.items[i]->index].phase;

        if (p == SHAPE_ASKED || p == SHAPE_READY)
            return false;
    }
    return true;
}

static void set_profile(struct shape *h, struct sh_blob b)
{
    struct msg_profile rows[PREDICT_N_BUCKETS];
    size_t n = SH_MIN(b.len / sizeof(rows[0]), SH_ARRAY_LEN(rows));

    if (n)
        memcpy(rows, b.data, n * sizeof(rows[0]));
    predict_profile(&h->predict, rows, n);
}

void shapes_on_wait(struct sched *s, const struct exec *e, const struct msg_exec_wait *msg)
{
    const int64_t ns = SH_MIN(SH_MAX(msg->worker_ns, 0), MAX_WAIT_NS);
    struct model *m = models_find(&s->models, msg->version_id);
    struct sh_sizes z;
    struct shape *h;

    if (!m)
        return;
    if (!msg->sizes.len)
        m->on[e->index].worker_ns = ns;
    else if (!read_size_blob(msg->sizes, &z, NULL) && (h = find_shape(m, &z)))
        h->on[e->index].worker_ns = ns;
}

void shapes_on_state(struct sched *s, struct exec *e, const struct msg_shape_state *m)
{
    struct model *v = models_find(&s->models, m->version_id);
    struct shape *h = NULL;
    struct sh_err err = {0};
    bool was_ready;

    if (!v || get_shape(s, v, m->sizes, &h, &err))
        return; /* it is on its way out, or one more than we remember */
    was_ready = h->on[e->index].phase == SHAPE_READY;
    switch (m->state) {
    case MSG_MODEL_READY:
        h->on[e->index].phase = SHAPE_READY;
        set_profile(h, m->profile);
        break;
    case MSG_MODEL_FAILED:
        /* What may work another time is asked for again, by the next request. */
        h->on[e->index].phase = sh_rc_retry((int)m->rc) ? SHAPE_ABSENT : SHAPE_FAILED;
        h->rc = (int)m->rc;
        sh_strlcpy(h->msg, m->msg, sizeof(h->msg));
        if (is_hopeless(s, h))
            s->route->on_shape_away(s, h);
        break;
    default:
        h->on[e->index].phase = SHAPE_ABSENT;
    }
    if (h->on[e->index].phase != SHAPE_READY)
        h->on[e->index].worker_ns = 0;
    if (was_ready && h->on[e->index].phase != SHAPE_READY)
        s->route->on_unready(s, e, v, h);
    sched_wake(s);
}

void shapes_forget_exec(struct model *m, uint32_t exec_index)
{
    for (struct shape *h = m->shapes; h; h = h->next)
        h->on[exec_index] = (struct shape_on){0};
}

void shapes_free(struct model *m)
{
    while (m->shapes) {
        struct shape *next = m->shapes->next;

        free(m->shapes->on);
        free(m->shapes);
        m->shapes = next;
    }
    m->n_shapes = 0;
    free(m->warm);
    m->warm = NULL;
    m->n_warm = 0;
}
