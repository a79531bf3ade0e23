/* onnx_state.c - what the order of initializers says of them.
 *
 * PyTorch's older exporter names no kinds, but writes what it kept of a module's state dictionary
 * in its order: one module after the other, of each the parameters first, then the buffers. So what
 * comes behind a buffer (integers, or by its name) is one too, unless a weight or a bias comes
 * behind it as well: then it is a parameter without a gradient ("grid"). If a module is met again
 * after another, something has changed the order, and it says nothing.
 */
#include "common/mem.h"
#include "runtime/model/onnx_reader.h"
#include "runtime/model/param_rules.h"

#include <stdlib.h>

/* Initializers [from, to) may be of the module whose name has `len` bytes, with the dot. */
struct module {
    const char *name;
    size_t from, to, len;
};

static size_t module_length(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? (size_t)(dot - name) + 1 : 0;
}

/* NULL: an exporter, or what restored parameters here, has made it. */
static const char *name_of(const struct reader *r, size_t i)
{
    const char *name = reader_text(r->model->graph->initializer[i]->name);

    return name[0] && !strchr(name, '@') && !param_is_made_up(name) ? name : NULL;
}

static struct module module_at(const struct reader *r, size_t from)
{
    struct module m = {.name = name_of(r, from), .from = from, .to = from + 1};

    m.len = m.name ? module_length(m.name) : 0;
    for (size_t i = m.to; m.name && i < r->model->graph->n_initializer; i++) {
        const char *name = name_of(r, i);

        if (name && (module_length(name) != m.len || strncmp(name, m.name, m.len) != 0))
            break;
        if (name)
            m.to = i + 1;
    }
    return m;
}

static bool is_first_buffer(const struct graph_value *v)
{
    return v->dtype == SH_I64 || v->dtype == SH_I32 || v->dtype == SH_BOOL || v->dtype == SH_U8 ||
           param_is_buffer(v->name);
}

/* NULL: it is not of the module, or not a constant of the graph. */
static struct graph_value *value_at(struct reader *r, size_t i)
{
    const char *name = name_of(r, i);
    const uint32_t v = name ? names_get(&r->names, name) : NAMES_NONE;

    return v != NAMES_NONE && r->g->values[v].data ? &r->g->values[v] : NULL;
}

static void tell_module(struct reader *r, const struct module *m)
{
    size_t buffers = m->to;

    for (size_t i = m->from; i < m->to; i++) {
        const struct graph_value *v = value_at(r, i);

        if (v && (strcmp(v->name + m->len, "weight") == 0 || strcmp(v->name + m->len, "bias") == 0))
            buffers = m->to;
        else if (v && buffers == m->to && is_first_buffer(v))
            buffers = i;
    }
    for (size_t i = buffers; i < m->to; i++) {
        struct graph_value *v = value_at(r, i);

        if (v)
            v->said = GRAPH_SAID_BUFFER;
    }
}

/* Every module once? `seen` has the names that end with a dot; OWNED, in `copies`. */
static int see_modules(struct reader *r, struct names *seen, char **copies, bool *once)
{
    const size_t n = r->model->graph->n_initializer;
    int rc = SH_OK;

    for (size_t i = 0; i < n && rc == SH_OK && *once; i++) {
        const struct module m = module_at(r, i);

        if (!m.name)
            continue;
        rc = sh_asprintf(r->err, &copies[i], "%.*s", (int)m.len, m.name);
        if (!rc && names_get(seen, copies[i]) != NAMES_NONE)
            *once = false;
        else if (!rc)
            rc = names_put(seen, copies[i], (uint32_t)i, r->err);
        i = m.to - 1;
    }
    return rc;
}

int reader_state(struct reader *r)
{
    const size_t n = r->model->graph->n_initializer;
    bool once = strcmp(reader_text(r->model->producer_name), "pytorch") == 0;
    char **copies = NULL;
    struct names seen;
    int rc;

    if (!once)
        return SH_OK;
    rc = names_init(&seen, r->err);
    if (rc)
        return rc;
    copies = calloc(n + 1, sizeof(*copies));
    rc = copies ? see_modules(r, &seen, copies, &once)
                : SH_FAIL(r->err, SH_E_NOMEM, "could not allocate a list of %zu modules", n);
    for (size_t i = 0; i < n && rc == SH_OK && once; i++) {
        const struct module m = module_at(r, i);

        if (m.name)
            tell_module(r, &m);
        i = m.to - 1;
    }
    for (size_t i = 0; i < n && copies; i++)
        free(copies[i]);
    free(copies);
    names_fini(&seen);
    return rc;
}
