/* pack.c - see pack.h. */
#include "executor/worker/pack.h"

#include "common/mem.h"
#include "runtime/group.h"
#include "runtime/pack/layers.h"
#include "runtime/pack/pack.h"

#include <stdlib.h>
#include <string.h>

#define PIECE ((uint64_t)4 << 20) /* bytes packed without a look at what waits */
#define LEAST_SAVED 0.02          /* of bytes; less is not worth it */
#define MOST_LATER 0.10 /* of a run's time, where a byte is unpacked before one is copied */
#define GROUP_NS 7000   /* what unpacking a group takes beside its bytes */
#define AT_ONCE 64u

/* Packed bytes for which the image has no room yet: [from, to), multiples of PACK_ALIGN. */
struct ahead {
    unsigned char *base; /* OWNED, free() */
    size_t room, from, to;
};

struct packing {
    unsigned char *image;
    uint64_t done; /* so many bytes of it are packed ones; the next layer begins behind them */
    struct ahead ahead;
    const uint64_t *ends; /* of layers */
    struct pack_span *spans;
    size_t n_spans, at; /* at: the first one of the layer */
};

/* The spans of the layer, which begin at its first byte from now on. */
static size_t spans_of(struct packing *k, uint32_t layer)
{
    const uint64_t from = layer_begin(k->ends, layer), to = k->ends[layer];
    size_t n = 0;

    while (k->at + n < k->n_spans && k->spans[k->at + n].off < to)
        k->spans[k->at + n++].off -= from;
    return n;
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

static int pack_next(struct packing *k, uint32_t layer, uint64_t *link_end, struct sh_err *err)
{
    const uint64_t bytes = layer_bytes(k->ends, layer);
    const size_t n = spans_of(k, layer);
    struct ahead *a = &k->ahead;
    size_t packed = 0;
    int rc = make_room(a, pack_bound(bytes, n), err);

    if (!rc)
        rc = pack_layer(k->image + layer_begin(k->ends, layer), bytes, k->spans + k->at, n,
                        a->base + a->to, &packed, err);
    if (rc)
        return rc;
    k->at += n;
    a->to += packed;
    *link_end = k->done + a->to - a->from;
    move_packed(k, k->ends[layer]);
    return SH_OK;
}

/* Tables stay as they are, from a page on, as they are read in place. What lies before that page
 * goes with the first of them: a packed layer knows its own length. */
static void move_tables(struct packing *k, uint32_t from, uint32_t n_layers, uint64_t *link_ends)
{
    const uint64_t begin = layer_begin(k->ends, from);
    const uint64_t at = SH_ALIGN_UP(k->done, (uint64_t)DEV_TABLES_ALIGN);

    if (from == n_layers)
        return;
    memset(k->image + k->done, 0, at - k->done); /* images are compared and hashed */
    memmove(k->image + at, k->image + begin, k->ends[n_layers - 1] - begin);
    for (uint32_t i = from; i < n_layers; i++)
        link_ends[i] = at + k->ends[i] - begin;
}

int pack_image(const struct program *p, void *image, uint64_t *link_ends,
               void (*between)(void *arg), void *arg, bool *is_packed, struct sh_err *err)
{
    struct packing k = {.image = image, .ends = program_layer_ends(p)};
    const uint32_t all = program_n_layers(p), n_layers = all - program_n_tables(p);
    uint64_t to = 0, since = 0;
    int rc = program_spans(p, &k.spans, &k.n_spans, err);

    for (uint32_t i = 0; !rc && i < n_layers; i++) {
        rc = pack_next(&k, i, &link_ends[i], err);
        if (!rc && k.ends[i] - since >= PIECE) {
            since = k.ends[i];
            between(arg);
        }
    }
    if (!rc)
        to = layer_begin(link_ends, n_layers);
    *is_packed = to > 0 && (double)to <= (1 - LEAST_SAVED) * (double)layer_begin(k.ends, n_layers);
    if (*is_packed) /* so all of them had room */
        move_tables(&k, n_layers, all, link_ends);
    free(k.ahead.base);
    free(k.spans);
    return rc;
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
