/* graph_text.h - graphs of one node from short texts, for tables of tests.
 *
 * Inputs, separated by blanks: "f[8,3]" is an FP32 input of the model, "l" INT64, "b" BOOL, "h"
 * FP16; "i[2]=1,2" a constant INT64, "c[2]=0.5,1" FP32, "t[2]=1,0" BOOL; "p[4,4]" a parameter; "-"
 * is absent. Attributes: "axis=1 perm=0,1, alpha~0.5 mode:edge" (a list ends with a comma).
 */
#ifndef SH_TESTS_UNIT_GRAPH_TEXT_H
#define SH_TESTS_UNIT_GRAPH_TEXT_H

#include "runtime/model/graph.h"
#include "tests/unit/sh_test.h"

static inline enum sh_dtype text_dtype(char c)
{
    return c == 'l' || c == 'i'   ? SH_I64
           : c == 'b' || c == 't' ? SH_BOOL
           : c == 'h'             ? SH_F16
                                  : SH_F32;
}

static inline int text_dims(const char **s, int64_t *dims)
{
    int rank = 0;

    assert_int_equal(**s, '[');
    for ((*s)++; **s != ']'; (*s) += **s == ',')
        dims[rank++] = strtoll(*s, (char **)(uintptr_t)s, 10);
    (*s)++;
    return rank;
}

static inline void *text_data(const char **s, enum sh_dtype t, size_t n)
{
    char *data = calloc(n + 1, sh_dtype_bytes(t));

    assert_non_null(data);
    for (size_t i = 0; **s == '=' || **s == ','; i++) {
        (*s)++;
        if (**s == ' ' || **s == '\0')
            break; /* "i[0]=": no numbers */
        assert_true(i < n);
        if (t == SH_F32)
            ((float *)(void *)data)[i] = strtof(*s, (char **)(uintptr_t)s);
        else if (t == SH_I64)
            ((int64_t *)(void *)data)[i] = strtoll(*s, (char **)(uintptr_t)s, 10);
        else
            data[i] = strtoll(*s, (char **)(uintptr_t)s, 10) != 0;
    }
    return data;
}

static inline uint32_t text_value(struct graph *g, const char **s, int number)
{
    char kind = **s, name[16];
    enum sh_dtype t = text_dtype(kind);
    int64_t dims[SH_MAX_RANK], n = 1;
    uint32_t v;
    int rank;

    (*s)++;
    if (kind == '-')
        return GRAPH_NONE;
    rank = text_dims(s, dims);
    for (int i = 0; i < rank; i++)
        n *= dims[i];
    snprintf(name, sizeof(name), "in%d", number);
    if (strchr("ictp", kind)) {
        assert_ok(graph_add_const(g, name, t, rank, dims, text_data(s, t, (size_t)n), &v, NULL));
        g->values[v].is_param = kind == 'p';
        return v;
    }
    assert_ok(graph_add_value(g, name, t, rank, dims, &v, NULL));
    assert_ok(graph_add_input(g, v, NULL));
    return v;
}

static inline void text_attr(struct graph_node *n, char *word)
{
    char *sep = word + strcspn(word, "=~:"), kind = *sep, *p;
    int64_t list[32];
    size_t k = 0;

    *sep = '\0';
    p = sep + 1;
    if (kind == ':')
        assert_ok(graph_set_str(n, word, p, NULL));
    else if (kind == '~')
        assert_ok(graph_set_float(n, word, strtod(p, NULL), NULL));
    else if (!strchr(p, ','))
        assert_ok(graph_set_int(n, word, strtoll(p, NULL, 10), NULL));
    else {
        for (; *p; p += *p == ',')
            list[k++] = strtoll(p, &p, 10);
        assert_ok(graph_set_ints(n, word, list, k, NULL));
    }
}

/* One node with n_out outputs "y0", "y1", ...; all are outputs of the graph. A model needs an
 * input: without one in the text it gets "x", which nothing uses. OWNED, graph_free(). */
static inline struct graph *text_graph(const char *op, const char *inputs, const char *attrs,
                                       uint32_t n_out)
{
    uint32_t in[16], out[8], n_in = 0, node;
    struct graph *g = NULL;
    char words[256], *save = NULL;
    int64_t one = 1;

    assert_ok(graph_new(&g, NULL));
    for (const char *s = inputs; *s; s += *s == ' ') {
        in[n_in] = text_value(g, &s, (int)n_in);
        n_in++;
    }
    if (g->n_inputs == 0) {
        uint32_t x;

        assert_ok(graph_add_value(g, "x", SH_F32, 1, &one, &x, NULL));
        assert_ok(graph_add_input(g, x, NULL));
    }
    for (uint32_t i = 0; i < n_out; i++) {
        char name[16];

        snprintf(name, sizeof(name), "y%u", i);
        assert_ok(graph_add_value(g, name, SH_F32, -1, NULL, &out[i], NULL));
        assert_ok(graph_add_output(g, out[i], NULL));
    }
    assert_ok(graph_add_node(g, "n", op, in, n_in, out, n_out, &node, NULL));
    snprintf(words, sizeof(words), "%s", attrs);
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        text_attr(&g->nodes[node], w);
    return g;
}

static inline int64_t text_batch(const struct graph *g)
{
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (g->values[g->inputs[i]].rank > 0)
            return g->values[g->inputs[i]].dims[0] < 0 ? 4 : g->values[g->inputs[i]].dims[0];
    return 1;
}

/* "FP32[8,3]" */
static inline void text_shape(const struct graph_value *v, char *out, size_t size)
{
    size_t at = (size_t)snprintf(out, size, "%s[", sh_dtype_v2(v->dtype));

    for (int i = 0; i < v->rank; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%lld", i ? "," : "", (long long)v->dims[i]);
    snprintf(out + at, size - at, "]");
}

#endif
