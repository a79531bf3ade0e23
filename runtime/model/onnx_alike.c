/* onnx_alike.c - see onnx_alike.h. */
#include "runtime/model/onnx_alike.h"

#include "common/mem.h"
#include "runtime/model/onnx_meta.h"

#include <stdlib.h>

static int read_keys(struct onnx_alike *a, const Onnx__GraphProto *g,
                     const struct names *initializers, onnx_alike_key *key,
                     const struct param_kinds *kinds, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t k = 0; k < g->n_value_info && !rc; k++) {
        const char *name = g->value_info[k]->name;
        const uint32_t i = name ? names_get(initializers, name) : NAMES_NONE;
        char *list = i < a->n && !a->keys[i] ? onnx_folded_from(g->value_info[k]) : NULL;
        char is[PARAM_FORM_NAME];

        if (list && key(name, list, kinds, is))
            rc = sh_strdup(is, &a->keys[i], err);
        free(list);
    }
    return rc;
}

/* In the order of the file, which the lists need not have. */
static int link_all(struct onnx_alike *a, uint32_t *last, struct sh_err *err)
{
    int rc = names_init(&a->first, err);

    for (uint32_t i = 0; i < a->n && !rc; i++) {
        const uint32_t head = a->keys[i] ? names_get(&a->first, a->keys[i]) : NAMES_NONE;

        if (head == NAMES_NONE && a->keys[i]) {
            rc = names_put_first(&a->first, a->keys[i], i, err);
            last[i] = i;
        } else if (head != NAMES_NONE) {
            a->next[last[head]] = i + 1;
            last[head] = i;
        }
    }
    return rc;
}

int onnx_alike_read(struct onnx_alike *a, const Onnx__GraphProto *g,
                    const struct names *initializers, onnx_alike_key *key,
                    const struct param_kinds *kinds, struct sh_err *err)
{
    uint32_t *last = calloc(g->n_initializer + 1, sizeof(*last));
    int rc;

    *a = (struct onnx_alike){.keys = calloc(g->n_initializer + 1, sizeof(*a->keys)),
                             .next = calloc(g->n_initializer + 1, sizeof(*a->next)),
                             .n = (uint32_t)g->n_initializer};
    rc = a->keys && a->next && last
             ? read_keys(a, g, initializers, key, kinds, err)
             : SH_FAIL(err, SH_E_NOMEM, "could not allocate a list of initializers");
    if (!rc)
        rc = link_all(a, last, err);
    free(last);
    return rc;
}

void onnx_alike_fini(struct onnx_alike *a)
{
    for (uint32_t i = 0; i < a->n && a->keys; i++)
        free(a->keys[i]);
    free(a->keys);
    free(a->next);
    names_fini(&a->first);
    *a = (struct onnx_alike){.n = 0};
}

uint32_t onnx_alike_next(const struct onnx_alike *a, uint32_t i)
{
    return i < a->n && a->next[i] ? a->next[i] - 1 : NAMES_NONE;
}
