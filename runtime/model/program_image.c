/* program_image.c - what a program writes: its image, and the first state of training. */
#include "common/mem.h"
#include "runtime/model/init.h"
#include "runtime/model/program_int.h"

#include <stdlib.h>

/* Where it lies in the image. */
static size_t image_offset(const struct program *p, uint32_t t)
{
    const bool is_table = ir_t(p->ir, t)->role == DEV_ROLE_TABLE;

    return ir_t(p->ir, t)->offset + (is_table ? p->plan.tables_at : 0);
}

/* to: where the tensor lies. */
static int write_later(struct program *p, uint32_t t, size_t plain, char *to, struct sh_err *err)
{
    const struct ir_info *info = &p->ir->info[t];
    void *data = malloc(plain);
    int rc;

    if (!data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the %zu bytes of \"%s\"", plain,
                       ir_t(p->ir, t)->name);
    info->fill(info->ctx, data);
    rc = dev_plan_pack(p->dp, t, data, to, err);
    free(data);
    return rc;
}

static int write_one(struct program *p, uint32_t t, char *to, struct sh_err *err)
{
    const struct dev_tensor *d = ir_t(p->ir, t);
    const void *data = p->ir->info[t].data;
    size_t plain = (size_t)ir_elements(p->ir, t) * sh_dtype_bytes(d->dtype);

    if (plain == 0)
        return SH_OK;
    if (p->ir->info[t].init.kind != IR_INIT_NONE) {
        memset(to, 0, d->bytes);
        init_fill(&p->ir->info[t].init, p->seed, d->name, (float *)(void *)to,
                  ir_elements(p->ir, t));
        return SH_OK;
    }
    if (!data && p->ir->info[t].fill)
        return write_later(p, t, plain, to, err);
    if (!data || d->role == DEV_ROLE_STATE) { /* plain, or nothing yet */
        memset(to, 0, d->bytes);
        if (data)
            memcpy(to, data, plain);
        return SH_OK;
    }
    return dev_plan_pack(p->dp, t, data, to, err);
}

int program_write_image(struct program *p, void *image, struct sh_err *err)
{
    int rc = SH_OK;

    memset(image, 0, p->plan.image_bytes); /* the gaps too: images are compared and hashed */
    for (uint32_t i = 0; rc == SH_OK && i < p->ir->g.n_tensors; i++)
        if (program__is_weight(p, i))
            rc = write_one(p, i, (char *)image + image_offset(p, i), err);
    return rc;
}

static int by_place(const void *a, const void *b)
{
    return ((const struct pack_span *)a)->off < ((const struct pack_span *)b)->off ? -1 : 1;
}

/* Cuts what reaches into the next layer; there is room for as many spans more as layers. */
static void end_spans_with_layers(const struct program *p, const struct pack_span *from, size_t n,
                                  struct pack_span *to, size_t *n_to)
{
    const uint64_t *end = p->plan.layer_ends;

    for (size_t i = 0; i < n; i++) {
        struct pack_span v = from[i];

        for (; v.off + v.bytes > *end; end++) {
            if (v.off < *end)
                to[(*n_to)++] = (struct pack_span){v.off, *end - v.off, v.type};
            v.bytes -= SH_MAX(*end, v.off) - v.off;
            v.off = SH_MAX(*end, v.off);
        }
        to[(*n_to)++] = v;
    }
}

int program_spans(const struct program *p, struct pack_span **out, size_t *n, struct sh_err *err)
{
    struct pack_span *v = calloc(p->ir->g.n_tensors + 1u, sizeof(*v));
    size_t n_weights = 0;

    *n = 0;
    *out = calloc((size_t)p->ir->g.n_tensors + p->ir->g.n_layers + 1u, sizeof(**out));
    for (uint32_t i = 0; v && i < p->ir->g.n_tensors; i++) {
        const struct dev_tensor *t = ir_t(p->ir, i);

        if (program__is_weight(p, i) && t->bytes > 0)
            v[n_weights++] =
                (struct pack_span){.off = image_offset(p, i), .bytes = t->bytes, .type = t->stored};
    }
    if (v)
        qsort(v, n_weights, sizeof(*v), by_place);
    for (size_t i = 0; i < n_weights; i++) /* and the gap behind it */
        v[i].bytes = (i + 1 < n_weights ? v[i + 1].off : p->plan.image_bytes) - v[i].off;
    if (v && *out)
        end_spans_with_layers(p, v, n_weights, *out, n);
    free(v);
    return v && *out ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate the places of weights");
}

int program_write_state(struct program *p, void *state, struct sh_err *err)
{
    int rc = SH_OK;

    memset(state, 0, p->plan.state_bytes);
    for (uint32_t i = 0; rc == SH_OK && i < p->ir->g.n_tensors; i++)
        if (ir_t(p->ir, i)->role == DEV_ROLE_STATE && ir_t(p->ir, i)->alias_of == DEV_NONE)
            rc = write_one(p, i, (char *)state + ir_t(p->ir, i)->offset, err);
    return rc;
}
