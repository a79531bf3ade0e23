/* rewrite_einsum.c - Einsum as matrix products.
 *
 * Operands are taken from left to right. Each becomes an array whose axes are labels in order of
 * first use; a label that appears twice in one operand keeps its diagonal. A label that neither the
 * result nor a later operand has is summed: at once if only one operand has it, by the product if
 * both of a pair have it:
 *
 *   left  [batch, rows, sum]  x  right [batch, sum, columns]  ->  [batch, rows, columns]
 *
 * Labels: 0..51 letters, then one for each axis of the ellipsis, counted from the right so that
 * they broadcast like numpy's.
 */
#include "common/mem.h"
#include "runtime/model/rewrite.h"

#define LETTERS 52
#define N_LABELS (LETTERS + SH_MAX_RANK)
#define MAX_TERMS 16

struct term { /* an operand, or the result */
    int label[SH_MAX_RANK];
    int rank, dots; /* dots: where the ellipsis stands in what was read, -1: nowhere */
    uint32_t v;
};

struct einsum {
    struct shape_ctx *c;
    struct term in[MAX_TERMS], out;
    uint32_t n_in;
    bool explicit_out;
    int n_dots; /* axes that the ellipsis stands for */
    int64_t size[N_LABELS];
};

static int bad_equation(struct einsum *e, const char *why)
{
    return shape__fail(e->c, SH_E_INVALID, "the equation %s", why);
}

static int letter(char ch)
{
    return ch >= 'a' && ch <= 'z' ? ch - 'a' : ch >= 'A' && ch <= 'Z' ? ch - 'A' + 26 : -1;
}

static int read_term(struct einsum *e, const char **s, struct term *t)
{
    *t = (struct term){.dots = -1, .v = GRAPH_NONE};
    for (; **s && **s != ',' && strncmp(*s, "->", 2) != 0; (*s)++) {
        if (**s == ' ')
            continue;
        if (strncmp(*s, "...", 3) == 0 && t->dots < 0) {
            t->dots = t->rank;
            *s += 2;
            continue;
        }
        if (letter(**s) < 0)
            return bad_equation(e, "holds what is neither a letter nor ...");
        if (t->rank == SH_MAX_RANK)
            return bad_equation(e, "names more than 8 axes of an operand");
        t->label[t->rank++] = letter(**s);
    }
    return SH_OK;
}

static int read_equation(struct einsum *e, const char *s)
{
    int rc = SH_OK;

    for (bool more = true; more && rc == SH_OK;) {
        if (e->n_in == MAX_TERMS)
            return bad_equation(e, "has more than 16 operands");
        rc = read_term(e, &s, &e->in[e->n_in++]);
        more = *s == ',';
        s += more;
    }
    e->explicit_out = rc == SH_OK && *s != '\0';
    if (e->explicit_out) {
        s += 2;
        rc = read_term(e, &s, &e->out);
        if (!rc && *s)
            rc = bad_equation(e, "goes on after the result");
    }
    return rc;
}

/* The ellipsis becomes labels: the last axis of it is LETTERS, the one before LETTERS + 1, ... */
static int spread_dots(struct einsum *e, struct term *t, int n)
{
    if (t->dots < 0 || n < 0)
        return n == 0 || t->dots >= 0 ? SH_OK
                                      : bad_equation(e, "does not fit the rank of an operand");
    if (t->rank + n > SH_MAX_RANK)
        return bad_equation(e, "needs more than 8 axes");
    memmove(&t->label[t->dots + n], &t->label[t->dots],
            (size_t)(t->rank - t->dots) * sizeof(t->label[0]));
    for (int i = 0; i < n; i++)
        t->label[t->dots + i] = LETTERS + n - 1 - i;
    t->rank += n;
    return SH_OK;
}

static int note_sizes(struct einsum *e, const struct term *t)
{
    const struct graph_value *v = rw_v(e->c, t->v);

    for (int i = 0; i < t->rank; i++) {
        int64_t *size = &e->size[t->label[i]];

        if (*size != 0 && *size != 1 && v->dims[i] != 1 && *size != v->dims[i])
            return bad_equation(e, "gives one label two sizes");
        if (*size == 0 || *size == 1)
            *size = v->dims[i];
    }
    return SH_OK;
}

static int bind_terms(struct einsum *e)
{
    struct shape_ctx *c = e->c;
    int rc = e->n_in == c->n.n_in ? SH_OK : bad_equation(e, "has another number of operands");

    for (uint32_t i = 0; i < e->n_in && rc == SH_OK; i++) {
        const int n = shape__in(c, i)->rank - e->in[i].rank;

        rc = i ? shape__want_same_type(c, 0, i) : SH_OK;
        if (!rc && n < 0)
            rc = bad_equation(e, "does not fit the rank of an operand");
        if (!rc)
            rc = spread_dots(e, &e->in[i], n);
        e->in[i].v = c->n.in[i];
        e->n_dots = SH_MAX(e->n_dots, n);
        if (!rc)
            rc = note_sizes(e, &e->in[i]);
    }
    return rc;
}

static int count_label(const struct term *t, int label)
{
    int n = 0;

    for (int i = 0; i < t->rank; i++)
        n += t->label[i] == label;
    return n;
}

/* Without "->": the ellipsis, then the letters that stand once, by the alphabet (A-Z first). */
static int bind_result(struct einsum *e)
{
    int rc = SH_OK;

    if (e->explicit_out) {
        rc = spread_dots(e, &e->out, e->out.dots >= 0 ? e->n_dots : 0);
    } else {
        for (int i = e->n_dots; i-- > 0;)
            e->out.label[e->out.rank++] = LETTERS + i;
        for (int k = 0; k < LETTERS; k++) {
            const int label = (k + 26) % LETTERS;
            int n = 0;

            for (uint32_t i = 0; i < e->n_in; i++)
                n += count_label(&e->in[i], label);
            if (n != 1)
                continue;
            if (e->out.rank == SH_MAX_RANK)
                return bad_equation(e, "gives a result of more than 8 axes");
            e->out.label[e->out.rank++] = label;
        }
    }
    for (int i = 0; i < e->out.rank && rc == SH_OK; i++)
        if (e->size[e->out.label[i]] == 0 || count_label(&e->out, e->out.label[i]) > 1)
            rc = bad_equation(e, "has a result with a label that is unknown or there twice");
    return rc;
}

/* ---------------------------------------------------------------- one operand */

static void turn_term(struct einsum *e, struct term *t, const int *label, int rank)
{
    int64_t perm[SH_MAX_RANK] = {0};

    for (int i = 0; i < rank; i++)
        for (int j = 0; j < rank; j++)
            if (t->label[j] == label[i])
                perm[i] = j;
    t->v = rw_transpose(e->c, t->v, perm, rank);
    memcpy(t->label, label, (size_t)rank * sizeof(*label));
}

/* Axes a < b of one label become one: b goes behind a, then every (n + 1)th of n * n elements. */
static void diagonal(struct einsum *e, struct term *t, int a, int b)
{
    int64_t perm[SH_MAX_RANK], dims[SH_MAX_RANK], n;
    int k = 0;

    for (int i = 0; i < t->rank; i++) {
        if (i != b)
            perm[k++] = i;
        if (i == a)
            perm[k++] = b;
    }
    t->v = rw_transpose(e->c, t->v, perm, t->rank);
    memmove(&t->label[b], &t->label[b + 1], (size_t)(t->rank - b - 1) * sizeof(t->label[0]));
    t->rank--;
    memcpy(dims, rw_v(e->c, t->v)->dims, sizeof(dims));
    n = dims[a];
    if (e->c->err->rc == SH_OK && dims[a + 1] != n)
        bad_equation(e, "gives one label two sizes");
    memmove(&dims[a + 1], &dims[a + 2], sizeof(dims[0]) * (size_t)(SH_MAX_RANK - a - 2));
    dims[a] = n * n;
    t->v = rw_reshape(e->c, t->v, t->rank, dims);
    t->v = rw_slice(e->c, t->v, a, 0, n * n, n + 1);
}

static bool is_label_needed(const struct einsum *e, uint32_t from, int label)
{
    bool is = count_label(&e->out, label) > 0;

    for (uint32_t i = from; i < e->n_in; i++)
        is |= count_label(&e->in[i], label) > 0;
    return is;
}

/* No label twice; what only this operand has is summed. from: the operands not yet taken. */
static void simplify(struct einsum *e, struct term *t, uint32_t from, const struct term *other)
{
    int64_t axes[SH_MAX_RANK];
    int k = 0, kept = 0;

    for (int b = t->rank - 1; b > 0 && e->c->err->rc == SH_OK; b--)
        for (int a = 0; a < b; a++)
            if (t->label[a] == t->label[b]) {
                diagonal(e, t, a, b);
                break;
            }
    for (int i = 0; i < t->rank; i++)
        if (!is_label_needed(e, from, t->label[i]) && !(other && count_label(other, t->label[i])))
            axes[k++] = i;
    if (k > 0)
        t->v = rw_reduce(e->c, "ReduceSum", t->v, axes, k, false);
    for (int i = 0, next = 0; i < t->rank; i++) {
        if (next < k && axes[next] == i)
            next++;
        else
            t->label[kept++] = t->label[i];
    }
    t->rank = kept;
}

/* An axis of one where others have more. */
static void broadcast_term(struct einsum *e, struct term *t)
{
    int64_t dims[SH_MAX_RANK];
    bool grows = false;

    for (int i = 0; i < t->rank; i++) {
        dims[i] = e->size[t->label[i]];
        grows |= rw_v(e->c, t->v)->dims[i] != dims[i];
    }
    if (grows)
        t->v = rw_expand(e->c, t->v, t->rank, dims);
}

/* ---------------------------------------------------------------- a pair */

struct group {
    int label[SH_MAX_RANK], n;
    int64_t size;
};

static void put_in_group(struct einsum *e, struct group *g, int label)
{
    g->label[g->n++] = label;
    g->size *= e->size[label];
}

static uint32_t matrix(struct einsum *e, struct term *t, const struct group *a,
                       const struct group *b, const struct group *c)
{
    int order[3 * SH_MAX_RANK], n = 0;

    for (int i = 0; i < a->n; i++)
        order[n++] = a->label[i];
    for (int i = 0; i < b->n; i++)
        order[n++] = b->label[i];
    for (int i = 0; i < c->n; i++)
        order[n++] = c->label[i];
    broadcast_term(e, t);
    turn_term(e, t, order, n);
    return rw_reshape(e->c, t->v, 3, (const int64_t[]){a->size, b->size, c->size});
}

static void multiply_terms(struct einsum *e, struct term *acc, struct term *t, uint32_t from)
{
    struct group batch = {.size = 1}, sum = {.size = 1}, rows = {.size = 1}, columns = {.size = 1};
    int64_t dims[SH_MAX_RANK];
    uint32_t a, b;
    int n = 0;

    simplify(e, acc, from, t);
    simplify(e, t, from, acc);
    for (int i = 0; i < acc->rank; i++) {
        const int label = acc->label[i];

        put_in_group(e,
                     !count_label(t, label)            ? &rows
                     : is_label_needed(e, from, label) ? &batch
                                                       : &sum,
                     label);
    }
    for (int i = 0; i < t->rank; i++)
        if (!count_label(acc, t->label[i]))
            put_in_group(e, &columns, t->label[i]);
    if (batch.n + rows.n + columns.n > SH_MAX_RANK) {
        bad_equation(e, "needs more than 8 axes");
        return;
    }
    a = matrix(e, acc, &batch, &rows, &sum);
    b = matrix(e, t, &batch, &sum, &columns);
    acc->v = rw2(e->c, sum.n ? "MatMul" : "Mul", a, b);
    acc->rank = 0;
    for (int k = 0; k < 3; k++) {
        const struct group *g = k == 0 ? &batch : k == 1 ? &rows : &columns;

        for (int i = 0; i < g->n; i++) {
            dims[n++] = e->size[g->label[i]];
            acc->label[acc->rank++] = g->label[i];
        }
    }
    acc->v = rw_reshape(e->c, acc->v, acc->rank, dims);
}

int shape__rewrite_einsum(struct shape_ctx *c)
{
    struct einsum e = {.c = c};
    const char *equation = shape__str(c, "equation", "");
    struct term *acc = &e.in[0];

    e.out.dots = -1;
    if (c->err->rc || read_equation(&e, equation) || bind_terms(&e) || bind_result(&e))
        return c->err->rc;
    for (uint32_t i = 1; i < e.n_in && c->err->rc == SH_OK; i++)
        multiply_terms(&e, acc, &e.in[i], i + 1);
    simplify(&e, acc, e.n_in, NULL);
    if (c->err->rc)
        return c->err->rc;
    broadcast_term(&e, acc);
    turn_term(&e, acc, e.out.label, e.out.rank);
    return rw_is(c, 0, acc->v);
}
