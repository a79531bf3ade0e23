/* pack.c - see pack.h. */
#include "executor/worker/pack.h"

#include "common/mem.h"
#include "common/thread.h"
#include "runtime/group.h"
#include "runtime/pack/layers.h"
#include "runtime/pack/pack.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PIECE ((uint64_t)4 << 20) /* bytes packed without a look at what waits */
#define LEAST_SAVED 0.02          /* of bytes; less is not worth it */
#define MOST_LATER 0.10 /* of a run's time, where a byte is unpacked before one is copied */
#define GROUP_NS 7000   /* what unpacking a group takes beside its bytes */
#define AT_ONCE 64u
#define CORES_EACH 4u /* others have work, too */
#define MOST_HELPERS 3u

/* Packed bytes for which the image has no room yet: [from, to), multiples of PACK_ALIGN. */
struct ahead {
    unsigned char *base; /* OWNED, free() */
    size_t room, from, to;
};

struct packing {
    unsigned char *image;
    uint64_t done; /* so many bytes of it are packed ones; the next layer begins behind them */
    struct ahead ahead;
    const uint64_t *ends;    /* of layers */
    uint32_t n_layers;       /* without tables */
    struct pack_span *spans; /* OWNED; each counts from its layer's beginning */
    size_t *first_span;      /* OWNED [n_layers + 1] */
    uint64_t *at_place;      /* OWNED [n_layers]: bytes packed at the layer's beginning; 0: it is as
                                it was */
    void (*between)(void *arg);
    void *arg;
};

static int read_spans(struct packing *k, const struct program *p, struct sh_err *err)
{
    size_t n = 0, at = 0;
    int rc = program_spans(p, &k->spans, &n, err);

    if (rc)
        return rc;
    k->first_span = calloc(k->n_layers + 1u, sizeof(*k->first_span));
    k->at_place = calloc(k->n_layers + 1u, sizeof(*k->at_place));
    if (!k->first_span || !k->at_place)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate memory to pack an image");
    for (uint32_t i = 0; i < k->n_layers; i++) {
        k->first_span[i] = at;
        while (at < n && k->spans[at].off < k->ends[i])
            k->spans[at++].off -= layer_begin(k->ends, i);
    }
    k->first_span[k->n_layers] = at;
    return SH_OK;
}

static size_t n_spans_of(const struct packing *k, uint32_t layer)
{
    return k->first_span[layer + 1] - k->first_span[layer];
}

static int pack_one(const struct packing *k, uint32_t layer, void *to, size_t *packed,
                    struct sh_err *err)
{
    return pack_layer(k->image + layer_begin(k->ends, layer), layer_bytes(k->ends, layer),
                      k->spans + k->first_span[layer], n_spans_of(k, layer), to, packed, err);
}

static size_t packed_bound(const struct packing *k, uint32_t layer)
{
    return pack_bound(layer_bytes(k->ends, layer), n_spans_of(k, layer));
}

/* For `bytes` behind what is there; for twice as much, or many tiny layers would move it again and
 * again. */
static int make_room(struct ahead *a, size_t bytes, struct sh_err *err)
{
    const size_t rest = a->to - a->from, room = SH_ALIGN_UP(2 * (rest + bytes), (size_t)PACK_ALIGN);
    unsigned char *base = a->base;

    if (bytes <= a->room - a->to)
        return SH_OK;
    if (room > a->room)
        base = aligned_alloc(PACK_ALIGN, room);
    if (!base)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate memory to pack an image");
    if (rest)
        memmove(base, a->base + a->from, rest);
    if (base != a->base)
        free(a->base);
    *a = (struct ahead){.base = base, .room = SH_MAX(room, a->room), .to = rest};
    return SH_OK;
}

/* To the image, of which all before `read` is packed: as much as that leaves room for. */
static void move_packed(struct packing *k, uint64_t read)
{
    struct ahead *a = &k->ahead;
    const size_t n =
        SH_MIN(a->to - a->from, (size_t)((read - k->done) / PACK_ALIGN) * (size_t)PACK_ALIGN);

    if (n)
        memcpy(k->image + k->done, a->base + a->from, n);
    k->done += n;
    a->from += n;
    if (a->from == a->to)
        a->from = a->to = 0;
}

/* ------------------------------------------------------------------ several at a time */

/* Layers that get smaller are packed to where they begin, each by one thread, which leaves the
 * order of layers to one. */
struct team {
    struct packing *k;
    atomic_uint next; /* layer */
    atomic_bool has_failed;
};

struct helper {
    struct team *team;
    pthread_t thread;
    int rc;
    struct sh_err err;
};

static int pack_at_place(struct packing *k, uint32_t layer, struct ahead *room, struct sh_err *err)
{
    size_t packed = 0;
    int rc = make_room(room, packed_bound(k, layer), err);

    if (!rc)
        rc = pack_one(k, layer, room->base, &packed, err);
    if (rc || packed > layer_bytes(k->ends, layer))
        return rc;
    memcpy(k->image + layer_begin(k->ends, layer), room->base, packed);
    k->at_place[layer] = packed;
    return SH_OK;
}

/* Until none is left. between: NULL, or called now and then. */
static int pack_some(struct team *t, void (*between)(void *arg), struct sh_err *err)
{
    struct packing *k = t->k;
    struct ahead room = {0};
    uint64_t since = 0;
    int rc = SH_OK;

    while (!rc && !atomic_load(&t->has_failed)) {
        const uint32_t i = atomic_fetch_add(&t->next, 1);

        if (i >= k->n_layers)
            break;
        rc = pack_at_place(k, i, &room, err);
        since += layer_bytes(k->ends, i);
        if (!rc && between && since >= PIECE) {
            since = 0;
            between(k->arg);
        }
    }
    if (rc)
        atomic_store(&t->has_failed, true);
    free(room.base);
    return rc;
}

static void *helper_main(void *arg)
{
    struct helper *h = arg;

    h->rc = pack_some(h->team, NULL, &h->err);
    return NULL;
}

/* One that cannot be started is done without. */
static int pack_by_team(struct packing *k, unsigned n_helpers, struct sh_err *err)
{
    struct team t = {.k = k};
    struct helper helpers[MOST_HELPERS] = {{0}};
    unsigned n = 0;
    int rc;

    while (n < SH_MIN(n_helpers, MOST_HELPERS)) {
        helpers[n].team = &t;
        if (sh_thread_start(&helpers[n].thread, helper_main, &helpers[n]))
            break;
        n++;
    }
    rc = pack_some(&t, k->between, err);
    for (unsigned i = 0; i < n; i++) {
        pthread_join(helpers[i].thread, NULL);
        if (!rc && helpers[i].rc)
            rc = sh_err_copy(err, &helpers[i].err);
    }
    return rc;
}

/* ------------------------------------------------------------------ one behind the other */

static int append_layer(struct packing *k, uint32_t layer, struct sh_err *err)
{
    const unsigned char *from = k->image + layer_begin(k->ends, layer);
    struct ahead *a = &k->ahead;
    size_t n = (size_t)k->at_place[layer];
    int rc;

    if (n && a->to == 0) {
        memmove(k->image + k->done, from, n);
        k->done += n;
        return SH_OK;
    }
    rc = make_room(a, n ? n : packed_bound(k, layer), err);
    if (!rc && n)
        memcpy(a->base + a->to, from, n);
    else if (!rc)
        rc = pack_one(k, layer, a->base + a->to, &n, err);
    if (rc)
        return rc;
    a->to += n;
    move_packed(k, k->ends[layer]);
    return SH_OK;
}

static int compact_layers(struct packing *k, uint64_t *link_ends, struct sh_err *err)
{
    uint64_t since = 0;
    int rc = SH_OK;

    for (uint32_t i = 0; !rc && i < k->n_layers; i++) {
        rc = append_layer(k, i, err);
        link_ends[i] = k->done + k->ahead.to - k->ahead.from;
        if (!rc && k->ends[i] - since >= PIECE) {
            since = k->ends[i];
            k->between(k->arg);
        }
    }
    return rc;
}

/* Tables stay as they are, from a page on, as they are read in place. What lies before that page
 * goes with the first of them: a packed layer knows its own length. */
static void move_tables(struct packing *k, uint32_t all, uint64_t *link_ends)
{
    const uint64_t begin = layer_begin(k->ends, k->n_layers);
    const uint64_t at = SH_ALIGN_UP(k->done, (uint64_t)DEV_TABLES_ALIGN);

    if (k->n_layers == all)
        return;
    memset(k->image + k->done, 0, at - k->done); /* images are compared and hashed */
    memmove(k->image + at, k->image + begin, k->ends[all - 1] - begin);
    for (uint32_t i = k->n_layers; i < all; i++)
        link_ends[i] = at + k->ends[i] - begin;
}

int pack_image(const struct program *p, void *image, uint64_t *link_ends, unsigned n_helpers,
               void (*between)(void *arg), void *arg, bool *is_packed, struct sh_err *err)
{
    const uint32_t all = program_n_layers(p);
    struct packing k = {.image = image,
                        .ends = program_layer_ends(p),
                        .n_layers = all - program_n_tables(p),
                        .between = between,
                        .arg = arg};
    uint64_t to = 0;
    int rc = read_spans(&k, p, err);

    if (!rc && n_helpers)
        rc = pack_by_team(&k, n_helpers, err);
    if (!rc)
        rc = compact_layers(&k, link_ends, err);
    if (!rc)
        to = layer_begin(link_ends, k.n_layers);
    *is_packed =
        to > 0 && (double)to <= (1 - LEAST_SAVED) * (double)layer_begin(k.ends, k.n_layers);
    if (*is_packed) /* so all of them had room */
        move_tables(&k, all, link_ends);
    free(k.ahead.base);
    free(k.at_place);
    free(k.first_span);
    free(k.spans);
    return rc;
}

unsigned pack_helpers(unsigned cores)
{
    return SH_MIN(cores / CORES_EACH, MOST_HELPERS);
}

/* Of a run for which all is copied, ns; INT64_MAX: not known. */
static int64_t finish_of(const uint64_t *ends, const uint64_t *sent, const double *layer_ns,
                         uint32_t n, const struct msg_wk_model *msg)
{
    const bool is_packed = sent != ends;
    int64_t *copy = calloc(2 * (size_t)n + 1, sizeof(*copy)), *compute = copy ? copy + n : NULL;
    const struct group_way link = {.alpha_ns = (int64_t)msg->copy_ns, .copy_ns = copy};
    struct group_plan plan = {0};
    int64_t finish = INT64_MAX;

    for (uint32_t i = 0; copy && i < n; i++) {
        const double bytes = (double)(ends[i] - layer_begin(ends, i));

        copy[i] = (int64_t)((double)(sent[i] - layer_begin(sent, i)) * msg->link_ns);
        compute[i] = (int64_t)(layer_ns[i] + (is_packed ? bytes * msg->unpack_ns : 0));
    }
    if (copy && !group_solve(&link, 1, compute, n, &plan, NULL)) {
        for (uint32_t g = 0; is_packed && g < plan.n; g++)
            compute[g ? plan.ends[g - 1] : 0] += GROUP_NS;
        finish = group_evaluate(&link, 1, compute, n, plan.ends, plan.n);
    }
    group_plan_fini(&plan);
    free(copy);
    return finish;
}

bool pack_gains(const struct program *p, const uint64_t *link_ends, const double *layer_ns,
                uint32_t n_batches, const struct msg_wk_model *msg)
{
    const uint64_t *ends = program_layer_ends(p);
    const uint32_t n = program_n_layers(p) - program_n_tables(p), all = program_n_layers(p);
    double packed = 0, plain = 0;

    for (uint32_t i = 0; n && i < n_batches; i++) {
        packed += (double)finish_of(ends, link_ends, layer_ns + (size_t)i * all, n, msg);
        plain += (double)finish_of(ends, ends, layer_ns + (size_t)i * all, n, msg);
    }
    /* That a run waits while it unpacks is an upper bound: much of it is done while the next group
     * is on its way. And packed, an image takes less of the host's memory and of the link. */
    return packed < (msg->unpack_ns < msg->link_ns ? 1 + MOST_LATER : 1 - LEAST_SAVED) * plain;
}

int unpack_layers(struct dev *d, const struct program *p, size_t image_off, size_t packed_at,
                  const uint64_t *link_ends, uint32_t *from, uint32_t to, struct sh_err *err)
{
    const uint64_t *ends = program_layer_ends(p);
    struct dev_packed layers[AT_ONCE];
    int rc = SH_OK;

    while (!rc && *from < to) {
        uint32_t n = 0;

        for (uint32_t i = *from; i < to && n < AT_ONCE; i++)
            layers[n++] =
                (struct dev_packed){.at = packed_at + layer_begin(link_ends, i),
                                    .packed_bytes = link_ends[i] - layer_begin(link_ends, i),
                                    .to = image_off + layer_begin(ends, i),
                                    .bytes = ends[i] - layer_begin(ends, i)};
        rc = dev_unpack(d, layers, n, err);
        if (!rc)
            *from += n;
    }
    return rc;
}
