/* cpu_layout.c - what layouts have in common: blocks of channels, the same bytes by two names. */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"

#define N_RANKS 3 /* from 3 on */

static const struct {
    int64_t block;
    dnnl_format_tag_t tag[N_RANKS];
} TAGS[] = {{16, {dnnl_nCw16c, dnnl_nChw16c, dnnl_nCdhw16c}},
            {8, {dnnl_nCw8c, dnnl_nChw8c, dnnl_nCdhw8c}},
            {4, {dnnl_nCw4c, dnnl_nChw4c, dnnl_nCdhw4c}},
            {0, {dnnl_nwc, dnnl_nhwc, dnnl_ndhwc}}};

static bool layout_by_tag(int rank, const dnnl_dims_t dims, size_t i, dnnl_memory_desc_t *out)
{
    return rank >= 3 && rank < 3 + N_RANKS &&
           dnnl_memory_desc_init_by_tag(out, rank, dims, dnnl_f32, TAGS[i].tag[rank - 3]) ==
               dnnl_success;
}

/* Which tag is md's? SH_ARRAY_LEN(TAGS): none of them. */
static size_t tag_bytes_of(const dnnl_memory_desc_t *md)
{
    dnnl_memory_desc_t its;
    size_t i = 0;

    while (i < SH_ARRAY_LEN(TAGS) &&
           !(layout_by_tag(md->ndims, md->dims, i, &its) && dnnl_memory_desc_equal(&its, md)))
        i++;
    return i;
}

int64_t cpu__channel_block(const dnnl_memory_desc_t *md)
{
    const size_t i = tag_bytes_of(md);

    return i < SH_ARRAY_LEN(TAGS) ? TAGS[i].block : 0;
}

int cpu__md_like(struct cpu_build *b, const dnnl_memory_desc_t *like, const dnnl_dims_t dims,
                 dnnl_memory_desc_t *out)
{
    const size_t i = tag_bytes_of(like);

    if (i < SH_ARRAY_LEN(TAGS))
        return layout_by_tag(like->ndims, dims, i, out) ? b->err->rc
                                                        : cpu__refuse(b, SH_E_BUG, "no layout");
    return cpu__md_plain((uint32_t)like->ndims, dims, dnnl_f32, out)
               ? cpu__refuse(b, SH_E_BUG, "no layout")
               : b->err->rc;
}

/* ------------------------------------------------------------------ the same bytes */

struct loop {
    int axis;
    int64_t size, stride;
};
#define MAX_LOOPS (2 * DNNL_MAX_NDIMS)

/* The loops, from the outermost on, in which elements follow each other; axes of one left out,
 * loops over one axis merged. -1: not known, or there are elements of padding. */
static int loops_of(const dnnl_memory_desc_t *md, struct loop *l)
{
    const dnnl_blocking_desc_t *k = &md->format_desc.blocking;
    int64_t inner = 1;
    int n = 0, w = 0;

    if (md->format_kind != dnnl_blocked || md->offset0 != 0)
        return -1;
    for (int i = 0; i < md->ndims; i++) {
        int64_t size = md->padded_dims[i];

        if (size != md->dims[i])
            return -1;
        for (int m = 0; m < k->inner_nblks; m++)
            size /= k->inner_idxs[m] == i ? k->inner_blks[m] : 1;
        l[n] = (struct loop){i, size, k->strides[i]};
        n += size != 1;
    }
    for (int i = 1; i < n; i++) /* by stride */
        for (int m = i; m > 0 && l[m - 1].stride < l[m].stride; m--) {
            const struct loop t = l[m];

            l[m] = l[m - 1];
            l[m - 1] = t;
        }
    for (int m = 0; m < k->inner_nblks; m++)
        inner *= k->inner_blks[m];
    for (int m = 0; m < k->inner_nblks; m++) {
        inner /= k->inner_blks[m];
        l[n] = (struct loop){(int)k->inner_idxs[m], k->inner_blks[m], inner};
        n += k->inner_blks[m] != 1;
    }
    for (int i = 1; i < n; i++)
        if (l[i].axis == l[w].axis && l[w].stride == l[i].size * l[i].stride)
            l[w] = (struct loop){l[i].axis, l[w].size * l[i].size, l[i].stride};
        else
            l[++w] = l[i];
    return n ? w + 1 : 0;
}

bool cpu__same_bytes(const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b)
{
    struct loop la[MAX_LOOPS], lb[MAX_LOOPS];
    int n;

    if (dnnl_memory_desc_equal(a, b))
        return true;
    if (a->ndims != b->ndims || a->data_type != b->data_type || a->extra.flags || b->extra.flags ||
        memcmp(a->dims, b->dims, (size_t)a->ndims * sizeof(a->dims[0])) != 0)
        return false;
    n = loops_of(a, la);
    if (n < 0 || loops_of(b, lb) != n)
        return false;
    for (int i = 0; i < n; i++)
        if (la[i].axis != lb[i].axis || la[i].size != lb[i].size || la[i].stride != lb[i].stride)
            return false;
    return true;
}
