/* onnx_mentions.c - see onnx_mentions.h. */
#include "runtime/model/onnx_mentions.h"

#include "common/mem.h"
#include "runtime/model/param_forms.h"
#include "runtime/model/param_rules.h"

#include <stdlib.h>
#include <string.h>

static int mention(struct onnx_mentions *m, const char *param, const struct param_kinds *kinds,
                   struct sh_err *err)
{
    const uint32_t i = names_get(&m->names, param);
    int rc;

    if (i != NAMES_NONE) {
        m->of[i].again |= m->of[i].list != m->n_lists;
        return SH_OK;
    }
    rc = sh_grow(&m->of, &m->cap, m->n + 1, sizeof(*m->of), kinds->names.n, "parameters", err);
    if (rc)
        return rc;
    m->of[m->n] = (struct mention){.list = m->n_lists};
    rc = sh_strdup(param, &m->of[m->n].name, err);
    if (!rc)
        rc = names_put(&m->names, m->of[m->n].name, (uint32_t)m->n, err);
    if (rc)
        free(m->of[m->n].name);
    else
        m->n++;
    return rc;
}

int onnx_mentions_add(struct onnx_mentions *m, const char *list, const struct param_kinds *kinds,
                      struct sh_err *err)
{
    char one[PARAM_FORM_NAME]; /* of a longer name nobody asks */
    size_t n = 0;
    int rc = m->names.cap ? SH_OK : names_init(&m->names, err);

    for (const char *p = param_next_name(list, &n); p && !rc; p = param_next_name(p + n + 1, &n)) {
        if (n == 0 || n >= sizeof(one))
            continue;
        memcpy(one, p, n);
        one[n] = '\0';
        if (param_kind(kinds, one) == GRAPH_SAID_PARAM)
            rc = mention(m, one, kinds, err);
    }
    m->n_lists++;
    return rc;
}

void onnx_mentions_fini(struct onnx_mentions *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->of[i].name);
    free(m->of);
    names_fini(&m->names);
    *m = (struct onnx_mentions){.n = 0};
}

bool onnx_mentioned_again(const struct onnx_mentions *m, const char *param)
{
    const uint32_t i = names_get(&m->names, param);

    return i != NAMES_NONE && m->of[i].again;
}
