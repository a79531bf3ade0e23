/* pack.c - see pack.h. */
#include "executor/worker/pack.h"

#include "common/mem.h"
#include "runtime/group.h"
#include "runtime/pack/layers.h"
#include "runtime/pack/pack.h"

#include <stdlib.h>

#define PIECE ((uint64_t)4 << 20) /* bytes packed without a look at what waits */
#define LEAST_SAVED 0.02          /* of bytes; less is not worth it */
#define MOST_LATER 0.10 /* of a run's time, where a byte is unpacked before one is copied */
#define GROUP_NS 7000   /* what unpacking a group takes beside its bytes */
#define AT_ONCE 64u

struct packing {
    const unsigned char *image;
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

/* No more than this, whatever the numbers. The rest of the memory is never touched. */
static int make_packed_memory(struct packing *k, uint32_t n_layers, struct sh_shm *out,
                              struct sh_err *err)
{
    const uint64_t bytes = layer_begin(k->ends, n_layers);

    return sh_shm_create(
        "shunt-image",
        pack_bound(bytes, k->n_spans) + n_layers * pack_bound(0, 0) + DEV_TABLES_ALIGN, out, err);
}

/* Tables stay as they are, from a page on, as they are read in place. What lies before that page
 * goes with the first of them: a packed layer knows its own length. */
static void append_tables(const struct packing *k, uint32_t from, uint32_t n_layers,
                          uint64_t *link_ends, struct sh_shm *out)
{
    const uint64_t begin = layer_begin(k->ends, from);
    const uint64_t at = SH_ALIGN_UP(layer_begin(link_ends, from), (uint64_t)DEV_TABLES_ALIGN);

    if (from == n_layers)
        return;
    memcpy((unsigned char *)out->base + at, k->image + begin, k->ends[n_layers - 1] - begin);
    for (uint32_t i = from; i < n_layers; i++)
        link_ends[i] = at + k->ends[i] - begin;
}

int pack_image(const struct program *p, const void *image, uint64_t *link_ends,
               void (*between)(void *arg), void *arg, struct sh_shm *out, struct sh_err *err)
{
    struct packing k = {.image = image, .ends = program_layer_ends(p)};
    const uint32_t all = program_n_layers(p), n_layers = all - program_n_tables(p);
    uint64_t to = 0, since = 0;
    int rc = program_spans(p, &k.spans, &k.n_spans, err);

    *out = (struct sh_shm){.fd = -1};
    if (!rc)
        rc = make_packed_memory(&k, all, out, err);
    for (uint32_t i = 0; !rc && i < n_layers; i++) {
        const uint64_t from = layer_begin(k.ends, i);
        const size_t n = spans_of(&k, i);
        size_t bytes = 0;

        rc = pack_layer(k.image + from, k.ends[i] - from, k.spans + k.at, n,
                        (unsigned char *)out->base + to, &bytes, err);
        k.at += n;
        link_ends[i] = to += bytes;
        if (k.ends[i] - since >= PIECE) {
            since = k.ends[i];
            between(arg);
        }
    }
    free(k.spans);
    if (rc || to == 0 || (double)to > (1 - LEAST_SAVED) * (double)layer_begin(k.ends, n_layers)) {
        sh_shm_fini(out);
        *out = (struct sh_shm){.fd = -1};
        return rc;
    }
    append_tables(&k, n_layers, all, link_ends, out);
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
