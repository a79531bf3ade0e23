/* loop_form.c - loops over what was found that are one expression of all of it: see loop_form.h.
 *
 * The results of a body are written as text, from the last node back to what the body is given.
 * What moves no number (Cast, Squeeze, ...) is left out, unless it may cut a fraction off or puts
 * axes elsewhere than in front; a node that was written before is "#n". A loop within the body is
 * written with the results of its own behind its inputs; a second level is given up.
 * A hostile body may be as large as a file: what is longer, deeper, or given more than known ones
 * are is given up.
 */
#include "runtime/model/loop_form.h"

#include "common/buf.h"
#include "common/mem.h"

#include <stdlib.h>

#define MAX_TEXT ((size_t)16 << 10)
#define MAX_DEPTH 128
#define MAX_BODIES 2 /* the loop's, and one within */

struct writing {
    struct run *r;
    const struct graph_node *bodies[MAX_BODIES];
    uint32_t n_bodies;
    uint32_t *writer; /* 1 + the node of the body that gives a value; 0: none */
    uint32_t *nr;     /* of each value: of the node that gives it, where it is written */
    uint32_t n_written;
    struct sh_buf text;
    struct loop_form *form;
    int depth;
    bool is_too_much; /* no known form is like this: nothing more is written */
};

static void put_words(struct writing *w, const char *s)
{
    w->is_too_much |= strlen(s) > MAX_TEXT - w->text.len;
    if (!w->is_too_much)
        sh_buf_puts(&w->text, s, w->r->c.err);
}

static bool is_loop_op(const char *op, const char *const *ops)
{
    while (*ops && strcmp(op, *ops) != 0)
        ops++;
    return *ops != NULL;
}

static const struct graph_node *value_writer(const struct writing *w, uint32_t v)
{
    return w->writer[v] ? &w->r->from->nodes[w->writer[v] - 1] : NULL;
}

/* A row of zeros, [1, n]. */
static bool is_zero_row(const struct graph_value *v)
{
    const int64_t n = graph_elements(v);
    bool is = v->data && v->rank == 2 && v->dims[0] == 1 && v->dtype == SH_F32;

    for (int64_t i = 0; i < n && is; i++)
        is = shape__get_f64(v->dtype, v->data, (size_t)i) == 0;
    return is;
}

/* false: it is not written as a number, nor as none. */
static bool put_constant(struct writing *w, const struct graph_value *v)
{
    const int64_t n = graph_elements(v);
    char text[32] = "";

    if (!v->data || (n > 1 && !is_zero_row(v)))
        return false;
    if (is_zero_row(v))
        snprintf(text, sizeof(text), "zeros");
    else if (n == 1 && v->dtype == SH_BOOL)
        snprintf(text, sizeof(text), *(const bool *)v->data ? "true" : "false");
    else if (n == 1 && !shape__is_int(v->dtype))
        snprintf(text, sizeof(text), "%g", shape__get_f64(v->dtype, v->data, 0));
    else if (n == 1 && shape__get_i64(v->dtype, v->data, 0) == INT64_MAX)
        snprintf(text, sizeof(text), "end");
    else if (n == 1)
        snprintf(text, sizeof(text), "%lld", (long long)shape__get_i64(v->dtype, v->data, 0));
    put_words(w, text);
    return true;
}

/* What the body is given, but for the number of its turn: a letter for each. */
static void put_given(struct writing *w, uint32_t v)
{
    struct loop_form *f = w->form;
    char letter[2] = "A";
    uint32_t k = 0;

    while (k < f->n_given && f->given[k] != v)
        k++;
    if (k == LOOP_FORM_GIVEN) {
        w->is_too_much = true;
        return;
    }
    if (k == f->n_given)
        f->given[f->n_given++] = v;
    letter[0] = (char)('A' + k);
    put_words(w, letter);
}

static void put_outside(struct writing *w, uint32_t v)
{
    char text[16];
    uint32_t at;

    for (uint32_t b = 0; b < w->n_bodies; b++)
        for (uint32_t k = 0; k < w->bodies[b]->n_out; k++)
            if (w->bodies[b]->out[k] == v) {
                snprintf(text, sizeof(text), "%c%u", "st"[b], k);
                put_words(w, k ? text : b ? "j" : "i");
                return;
            }
    at = w->r->map[v];
    if (at == GRAPH_NONE || run__is_sequence(at))
        put_words(w, "?");
    else if (!put_constant(w, &w->r->c.g->values[at]))
        put_given(w, at);
}

/* Axes of a Squeeze or an Unsqueeze, of the node or of its second input; -1: they are not known. */
static int axes_of(const struct writing *w, const struct graph_node *n,
                   int64_t axes[static SH_MAX_RANK])
{
    const uint32_t at = n->n_in > 1 && n->in[1] != GRAPH_NONE ? w->r->map[n->in[1]] : GRAPH_NONE;
    const struct graph_value *v =
        at == GRAPH_NONE || run__is_sequence(at) ? NULL : &w->r->c.g->values[at];
    const int64_t k = v && v->data && shape__is_int(v->dtype) ? graph_elements(v) : -1;
    size_t n_axes = 0;

    if (n->n_in < 2)
        return graph_ints(n, "axes", axes, SH_MAX_RANK, &n_axes, NULL) ? -1 : (int)n_axes;
    for (int64_t i = 0; i < k && k <= SH_MAX_RANK; i++)
        axes[i] = shape__get_i64(v->dtype, v->data, (size_t)i);
    return k <= SH_MAX_RANK ? (int)k : -1;
}

static bool moves_axes(const struct graph_node *n)
{
    return strcmp(n->op, "Squeeze") == 0 || strcmp(n->op, "Unsqueeze") == 0;
}

static void put_axes(struct writing *w, const struct graph_node *n)
{
    int64_t axes[SH_MAX_RANK];
    const int k = axes_of(w, n, axes);
    char text[24];

    put_words(w, k < 0 ? "?" : "");
    for (int i = 0; i < k; i++) {
        snprintf(text, sizeof(text), "%s%lld", i ? " " : "", (long long)axes[i]);
        put_words(w, text);
    }
}

static bool has_int(const struct graph_node *n, const char *attr, int64_t but)
{
    int64_t is = but;

    return graph_int(n, attr, but, &is, NULL) || is != but;
}

/* Has it an attribute that none of the known bodies has, so that it computes something else? */
static bool is_other(const struct graph_node *n)
{
    const char *policy = "";

    if (strcmp(n->op, "Resize") == 0)
        return has_int(n, "antialias", 0) || has_int(n, "exclude_outside", 0) ||
               graph__attr(n, "axes") ||
               graph_str(n, "keep_aspect_ratio_policy", "stretch", &policy, NULL) ||
               strcmp(policy, "stretch") != 0;
    if (strncmp(n->op, "Reduce", 6) == 0)
        return graph__attr(n, "axes") || has_int(n, "noop_with_empty_axes", 0);
    return has_int(n, "start", 0) || graph__attr(n, "end") || /* of a Shape */
           has_int(n, "select_last_index", 0) || has_int(n, "allowzero", 0) ||
           has_int(n, "batch_dims", 0);
}

static void put_op(struct writing *w, const struct graph_node *n)
{
    static const char *const BY_AXIS[] = {"ArgMax", "Concat", "Gather", NULL};
    const char *mode, *coords;
    int64_t axis;
    double a;
    char text[16];

    put_words(w, n->op);
    put_words(w, is_other(n) ? "?" : "");
    if (moves_axes(n))
        put_axes(w, n);
    if (is_loop_op(n->op, BY_AXIS) && !graph_int(n, "axis", 0, &axis, NULL)) {
        snprintf(text, sizeof(text), "%lld", (long long)axis);
        put_words(w, text);
    }
    if (strcmp(n->op, "Resize") == 0 && !graph_str(n, "mode", "nearest", &mode, NULL) &&
        !graph_str(n, "coordinate_transformation_mode", "half_pixel", &coords, NULL)) {
        put_words(w, "-");
        put_words(w, mode);
        put_words(w, "-");
        put_words(w, coords);
        graph_float(n, "cubic_coeff_a", -0.75, &a, NULL);
        snprintf(text, sizeof(text), "-%g", a);
        put_words(w, strcmp(mode, "cubic") == 0 ? text : "");
    }
}

static bool is_int(enum sh_dtype t)
{
    return t == SH_BOOL || shape__is_int(t);
}

/* Is Cast node n one to integers? */
static bool casts_to_int(const struct graph_node *n)
{
    int64_t to = 0;

    return graph_int(n, "to", 0, &to, NULL) == SH_OK && is_int(sh_dtype_from_onnx((int)to));
}

/* Is v of integers by its type? What is not known is of floats. */
static bool has_ints(const struct writing *w, uint32_t v)
{
    static const char *const INTS[] = {"ArgMax", "Shape", "Size", NULL};
    const struct graph_node *n = value_writer(w, v);
    uint32_t at;

    for (int i = 0; n && i < MAX_DEPTH; i++) {
        if (is_loop_op(n->op, INTS))
            return true;
        if (strcmp(n->op, "Cast") == 0)
            return casts_to_int(n);
        at = strcmp(n->op, "Where") == 0 ? 1 : 0;
        v = n->n_in > at ? n->in[at] : GRAPH_NONE;
        if (v == GRAPH_NONE)
            return false;
        n = value_writer(w, v);
    }
    at = n ? GRAPH_NONE : w->r->map[v];
    return v == w->bodies[0]->out[0] ||
           (at != GRAPH_NONE && !run__is_sequence(at) && is_int(w->r->c.g->values[at].dtype));
}

/* Are its numbers whole, whatever their type is? */
static bool is_whole(const struct writing *w, uint32_t v)
{
    static const char *const SAME[] = {"Cast", "Gather", "Identity", "Squeeze", "Unsqueeze", NULL};
    static const char *const WHOLE[] = {"Ceil", "Floor", "Round", NULL};
    const struct graph_node *n = value_writer(w, v);

    for (int i = 0; n && i < MAX_DEPTH && !has_ints(w, v) && is_loop_op(n->op, SAME); i++) {
        v = n->in[0];
        n = v == GRAPH_NONE ? NULL : value_writer(w, v);
    }
    return v != GRAPH_NONE && (has_ints(w, v) || (n && is_loop_op(n->op, WHOLE)));
}

/* Does a node give the numbers that it gets, in their order and, but for what stands in front, with
 * their axes? */
static bool moves_nothing(const struct writing *w, const struct graph_node *n)
{
    int64_t axes[SH_MAX_RANK];

    if (strcmp(n->op, "Cast") == 0)
        return !casts_to_int(n) || is_whole(w, n->in[0]);
    if (moves_axes(n))
        return axes_of(w, n, axes) == 1 && axes[0] == 0;
    return strcmp(n->op, "Expand") == 0 || strcmp(n->op, "Identity") == 0;
}

/* Before all that moves no number. */
static uint32_t moved_from(struct writing *w, uint32_t v)
{
    const struct graph_node *n = value_writer(w, v);

    for (int i = 0; n && moves_nothing(w, n); i++) {
        w->is_too_much |= i == MAX_DEPTH;
        if (w->is_too_much)
            break;
        v = n->in[0];
        n = value_writer(w, v);
    }
    return v;
}

static void put_expression(struct writing *w, uint32_t v)
{
    const struct graph_node *n;
    char text[16];

    v = moved_from(w, v);
    n = value_writer(w, v);
    if (w->is_too_much)
        return;
    if (!n) {
        put_outside(w, v);
        return;
    }
    if (w->nr[v]) {
        snprintf(text, sizeof(text), "#%u", w->nr[v]);
        put_words(w, text);
        return;
    }
    if (w->depth == MAX_DEPTH) {
        w->is_too_much = true;
        return;
    }
    w->depth++;
    put_op(w, n);
    for (uint32_t k = 1; k < n->n_out; k++) /* which of several */
        if (n->out[k] == v) {
            snprintf(text, sizeof(text), ".%u", k);
            put_words(w, text);
        }
    for (uint32_t i = 0; i < (moves_axes(n) ? 1 : n->n_in) && !w->is_too_much; i++) {
        put_words(w, i ? "," : "(");
        if (n->in[i] != GRAPH_NONE)
            put_expression(w, n->in[i]);
    }
    put_words(w, ")");
    w->nr[v] = ++w->n_written;
    w->depth--;
}

/* The nodes of a body, from `first` on, and of those within. */
static void add_writers(struct writing *w, uint32_t first)
{
    const struct graph *g = w->r->from;

    for (uint32_t i = first; i != GRAPH_NONE && !w->is_too_much; i = w->r->body_next[i]) {
        const struct graph_node *n = &g->nodes[i];
        int64_t body = 0;

        if (strcmp(n->op, "Body") == 0) {
            w->is_too_much = w->n_bodies == MAX_BODIES;
            if (!w->is_too_much)
                w->bodies[w->n_bodies++] = n;
            continue;
        }
        for (uint32_t k = 0; k < n->n_out; k++)
            if (n->out[k] != GRAPH_NONE)
                w->writer[n->out[k]] = i + 1;
        if (graph_int(n, GRAPH_BODY, 0, &body, NULL) == SH_OK && body > 0 &&
            body < w->r->n_bodies && w->n_bodies == 1)
            add_writers(w, w->r->body_first[body]);
        else
            w->is_too_much |= body != 0;
    }
}

int loop_form_read(struct run *r, const struct loop_form_of *of, struct loop_form *f)
{
    const uint32_t n = r->from->n_values;
    struct writing w = {.r = r, .form = f};

    *f = (struct loop_form){0};
    sh_buf_init(&w.text, MAX_TEXT);
    w.writer = calloc((size_t)n + 1, sizeof(*w.writer));
    w.nr = calloc((size_t)n + 1, sizeof(*w.nr));
    if (!w.writer || !w.nr)
        SH_FAIL(r->c.err, SH_E_NOMEM, "could not allocate the form of a loop");
    if (r->c.err->rc == SH_OK)
        add_writers(&w, of->first);
    for (uint32_t k = 0; k < of->n_results && r->c.err->rc == SH_OK; k++) {
        put_words(&w, k ? ";" : "");
        put_expression(&w, of->results[k]);
    }
    free(w.writer);
    free(w.nr);
    if (r->c.err->rc == SH_OK && !w.is_too_much)
        f->text = sh_buf_take(&w.text);
    sh_buf_fini(&w.text);
    return r->c.err->rc;
}

bool loop_form_is(const char *text, const char *known, const int64_t *size,
                  int64_t numbers[static LOOP_FORM_NUMBERS])
{
    size_t n = 0;

    for (; *known && *text; known++) {
        char *end;
        int64_t is;

        if (*known != '$' && *known != '@') {
            if (*text++ != *known)
                return false;
            continue;
        }
        is = strtoll(text, &end, 10);
        if (end == text || (*known == '@' && n == LOOP_FORM_NUMBERS))
            return false;
        if (*known == '@')
            numbers[n++] = is;
        else if (is != size[*++known - '1'])
            return false;
        text = end;
    }
    return *known == *text;
}
