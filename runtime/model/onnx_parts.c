/* onnx_parts.c - see onnx_parts.h. */
#include "runtime/model/onnx_parts.h"

#include "common/mem.h"
#include "runtime/model/names.h"
#include "runtime/model/onnx_build.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_tensor.h"
#include "runtime/model/param_forms.h"
#include "runtime/model/param_rules.h"

#include <stdlib.h>

#define MAX_ELEMENTS ((size_t)1 << 24)   /* of one that is looked at */
#define MAX_PARTS 256                    /* of all parameters */
#define MAX_COMPARED ((size_t)256 << 20) /* bytes, of the whole file */
#define MIN_ELEMENTS 4                   /* fewer may be equal by chance */

struct part {
    const Onnx__TensorProto *t; /* BORROWED, as the next */
    const uint8_t *data;        /* unaligned */
    size_t n;
    uint32_t of;   /* initializer */
    bool is_whole; /* the parameter itself, or maybe */
    char param[PARAM_FORM_NAME];
};

struct parts {
    struct onnx_build b;
    struct onnx_source *source;
    const struct param_kinds *kinds;
    struct names names; /* of initializers that may be parts */
    struct part *all;   /* OWNED */
    size_t n, compared;
};

/* How two tensors that differ along one axis lie in memory. */
struct along {
    size_t axis, outer, inner; /* inner: bytes of what lies behind the axis */
    size_t few, many;          /* along it, of the smaller and of the other one */
};

/* false: they differ elsewhere too, or not at all. */
static bool find_axis(const Onnx__TensorProto *a, const Onnx__TensorProto *b, struct along *out)
{
    size_t differ = 0;

    *out = (struct along){.outer = 1, .inner = sizeof(float)};
    if (a->n_dims != b->n_dims)
        return false;
    for (size_t k = 0; k < a->n_dims; k++) {
        if (a->dims[k] != b->dims[k]) {
            differ++;
            out->axis = k;
        } else if (differ) {
            out->inner *= (size_t)a->dims[k];
        } else {
            out->outer *= (size_t)a->dims[k];
        }
    }
    if (differ != 1)
        return false;
    out->few = (size_t)a->dims[out->axis];
    out->many = (size_t)b->dims[out->axis];
    return true;
}

/* Are n of a, from `from` on, those of b from `at` on? */
static bool are_same(struct parts *p, const struct along *l, const uint8_t *a, size_t from,
                     const uint8_t *b, size_t at, size_t n)
{
    bool same = true;

    for (size_t o = 0; o < l->outer && same && p->compared < MAX_COMPARED; o++) {
        same = memcmp(a + (o * l->few + from) * l->inner, b + (o * l->many + at) * l->inner,
                      n * l->inner) == 0;
        p->compared += same ? n * l->inner : l->inner;
    }
    return same && p->compared < MAX_COMPARED;
}

/* a becomes what lies in b from `at` on. */
static int gather_part(struct parts *p, const struct part *a, const struct part *b,
                       const struct along *l, size_t at)
{
    int64_t *index = malloc(l->few * sizeof(*index));

    if (!index)
        return SH_FAIL(p->b.err, SH_E_NOMEM, "could not allocate %zu places", l->few);
    for (size_t i = 0; i < l->few; i++)
        index[i] = (int64_t)(at + i);
    return onnx_build_places(&p->b, a->of, NULL, b->t->name, (int64_t)l->axis, index, l->few);
}

static int look_at_part(struct parts *p, const struct part *a, const struct part *b)
{
    struct along l;
    size_t at = 0;

    if (a == b || a->is_whole || p->b.gone[a->of] || p->b.gone[b->of] ||
        strcmp(a->param, b->param) != 0)
        return SH_OK;
    if (!find_axis(a->t, b->t, &l) || l.few > l.many)
        return SH_OK;
    while (at + l.few <= l.many && !are_same(p, &l, a->data, 0, b->data, at, l.few))
        at++;
    return at + l.few <= l.many ? gather_part(p, a, b, &l, at) : SH_OK;
}

/* ---------------------------------------------------------------- which there are */

/* Initializer i, of the parameter or, "", of what is not said. */
static int add_part(struct parts *p, uint32_t i, const char *param, bool is_whole)
{
    const Onnx__TensorProto *t = p->b.g->initializer[i];
    const size_t n = t->n_dims > 0 ? onnx_tensor_floats(t, MAX_ELEMENTS) : 0;
    const uint8_t *data =
        n >= MIN_ELEMENTS && p->n < MAX_PARTS ? onnx_tensor_look(t, p->source) : NULL;

    if (!data || !param_is_scattered(data, (int)t->n_dims, t->dims))
        return SH_OK;
    p->all[p->n] = (struct part){.t = t, .data = data, .n = n, .of = i, .is_whole = is_whole};
    sh_strlcpy(p->all[p->n++].param, param, PARAM_FORM_NAME);
    return SH_OK;
}

/* What the newer exporter says: parts of parameters, and these where they are in the file. */
static int find_said(struct parts *p)
{
    const Onnx__GraphProto *g = p->b.g;
    char param[PARAM_FORM_NAME];
    int rc = SH_OK;

    for (size_t i = 0; i < g->n_value_info && rc == SH_OK; i++) {
        const char *name = g->value_info[i]->name;
        const uint32_t at = name ? names_get(&p->names, name) : NAMES_NONE;
        char *list = at != NAMES_NONE ? onnx_folded_from(g->value_info[i]) : NULL;
        uint32_t whole;

        if (list && param_form_part(name, list, p->kinds, param)) {
            whole = names_get(&p->names, param);
            rc = add_part(p, at, param, false);
            if (!rc && whole != NAMES_NONE)
                rc = add_part(p, whole, param, true);
        }
        free(list);
    }
    return rc;
}

static int find_unsaid(struct parts *p)
{
    const Onnx__GraphProto *g = p->b.g;
    int rc = SH_OK;

    for (uint32_t i = 0; i < p->b.n_file && rc == SH_OK; i++)
        if (g->initializer[i]->name)
            rc = add_part(p, i, "", !param_is_folded(g->initializer[i]->name));
    return rc;
}

int onnx_parts(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
               struct sh_err *err)
{
    struct parts p = {.source = source, .kinds = kinds};
    const Onnx__GraphProto *g = m->graph;
    const bool known = param_kinds_known(kinds);
    int rc = names_init(&p.names, err);

    if (!rc)
        rc = onnx_build_init(&p.b, m->graph, err);
    p.all = calloc(MAX_PARTS, sizeof(*p.all));
    if (!rc && !p.all)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a list of parts");
    for (size_t i = 0; i < g->n_initializer && rc == SH_OK; i++)
        rc = names_put_first(&p.names, g->initializer[i]->name, (uint32_t)i, err);
    onnx_source_walk(source);
    if (!rc && known)
        rc = find_said(&p);
    else if (!rc && onnx_is_as_written(m))
        rc = find_unsaid(&p);
    for (size_t i = 0; i < p.n; i++)
        for (size_t k = 0; k < p.n && rc == SH_OK; k++)
            rc = look_at_part(&p, &p.all[i], &p.all[k]);
    if (!rc)
        rc = onnx_build_finish(&p.b);
    onnx_build_fini(&p.b);
    names_fini(&p.names);
    free(p.all);
    return rc;
}
