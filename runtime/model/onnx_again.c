/* onnx_again.c - see onnx_again.h. */
#include "runtime/model/onnx_again.h"

#include "common/mem.h"
#include "runtime/model/onnx_build.h"
#include "runtime/model/onnx_meta.h"
#include "runtime/model/onnx_tensor.h"
#include "runtime/model/param_rules.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#define MAX_ELEMENTS ((size_t)1 << 24) /* of one that is looked at */
#define MAX_ALIKE 64                   /* of the same axes, of which pairs are tried */
#define MAX_SUM 4096                   /* numbers of one whose sum is tried */
#define MIN_SUMS 3                     /* of rows, which are no chance */
#define AXES 13                        /* the opset from which on a sum's axes are an input */
#define MANY 4                         /* numbers that lie on a line by no chance */
#define MAX_BACK ((size_t)1 << 24)     /* looks for parts of parameters that came back */
#define SAME 2e-6                      /* of the largest part: what rounding leaves */

struct of { /* an initializer of floats */
    const Onnx__TensorProto *t;
    const uint8_t *data; /* unaligned; NULL: none that may be looked at. BORROWED */
    size_t n;
    bool named; /* it may be of the module */
};

struct again {
    struct onnx_build b;
    struct onnx_source *source;
    const struct param_kinds *kinds;
    struct names names, inputs; /* of initializers, to their numbers; of the graph */
    struct of *all;             /* of the file's initializers; OWNED */
    bool as_written;            /* by PyTorch's older exporter */
    bool has_axes;              /* by the newer one, which says what it computed */
    uint32_t n_guessed;
    size_t n_back; /* looks for what came back */
};

static size_t again_elements(const Onnx__TensorProto *t)
{
    return onnx_tensor_floats(t, MAX_ELEMENTS);
}

static double number_of_init(const struct of *x, size_t i)
{
    return (double)param_number(x->data, (int64_t)i);
}

static bool are_axes_same(const struct of *x, const struct of *y)
{
    return x->n == y->n && x->t->n_dims == y->t->n_dims &&
           (x->t->n_dims == 0 ||
            memcmp(x->t->dims, y->t->dims, x->t->n_dims * sizeof(*x->t->dims)) == 0);
}

/* Such as people write: 0, 1, -0.5; equal by chance. */
static bool are_numbers_round(const struct of *x)
{
    bool is = true;

    for (size_t i = 0; i < x->n && is; i++)
        is = number_of_init(x, i) * 4096 == trunc(number_of_init(x, i) * 4096);
    return is;
}

/* Single, and such as people write: 0.5, 0.07. */
static bool is_typed(const struct of *x)
{
    return x->n == 1 &&
           fabs(number_of_init(x, 0) * 1000 - round(number_of_init(x, 0) * 1000)) <= 1e-4;
}

/* ---------------------------------------------------------------- a line */

/* x = a * y + b? */
static bool is_on(const struct of *x, const struct of *y, double a, double b)
{
    bool is = true;

    for (size_t i = 0; i < x->n && is; i++)
        is = fabs(a * number_of_init(y, i) + b - number_of_init(x, i)) <=
             SAME * fmax(fabs(a * number_of_init(y, i)), fabs(b));
    return is;
}

/* What somebody wrote, if it is near. */
static double rounded(double x)
{
    const double r = round(x * 1024) / 1024;

    return fabs(r - x) <= 1e-5 * fmax(fabs(x), 1) ? r : (double)(float)x;
}

/* Three of them do not lie on one: most need no closer look. */
static bool is_off_line(const struct of *x, const struct of *y)
{
    const size_t k = x->n / 3, m = 2 * k;
    const double a = (number_of_init(x, k) - number_of_init(x, 0)) *
                     (number_of_init(y, m) - number_of_init(y, 0)),
                 b = (number_of_init(x, m) - number_of_init(x, 0)) *
                     (number_of_init(y, k) - number_of_init(y, 0));

    return fabs(a - b) >
           1e-3 * (fabs(a) + fabs(b)) + 1e-6 * fabs(number_of_init(x, 0) * number_of_init(y, 0));
}

static bool find_line(const struct of *x, const struct of *y, double *a, double *b)
{
    static const struct {
        double a, b;
    } WRITTEN[] = {{-1, 1}, {1, 1}, {-1, 0}, {2, 0}, {0.5, 0}, {1, -1}, {-2, 0}, {-0.5, 0}};
    size_t lo = 0, hi = 0, between = 0;

    for (size_t k = 0; k < SH_ARRAY_LEN(WRITTEN); k++) {
        *a = WRITTEN[k].a;
        *b = WRITTEN[k].b;
        if (is_on(x, y, *a, *b))
            return *b != -1 || !is_typed(x); /* -0.7 is more likely -t than t - 1 */
    }
    if (y->n < MANY || is_off_line(x, y))
        return false;
    for (size_t i = 1; i < y->n; i++) {
        lo = number_of_init(y, i) < number_of_init(y, lo) ? i : lo;
        hi = number_of_init(y, i) > number_of_init(y, hi) ? i : hi;
    }
    for (size_t i = 0; i < y->n; i++)
        between += number_of_init(y, i) != number_of_init(y, lo) &&
                   number_of_init(y, i) != number_of_init(y, hi);
    if (between < MANY / 2)
        return false;
    *a = rounded((number_of_init(x, hi) - number_of_init(x, lo)) /
                 (number_of_init(y, hi) - number_of_init(y, lo)));
    *b = rounded(number_of_init(x, lo) - *a * number_of_init(y, lo));
    return *a != 0 && (*a != 1 || *b != 0) && isfinite(*a) && isfinite(*b) && is_on(x, y, *a, *b);
}

/* A constant of one number beside t, with the name of one that does not learn. *name: OWNED. */
static int add_number(struct again *g, const struct of *t, const char *suffix, double x,
                      char **name)
{
    float *data = malloc(sizeof(*data));
    char *copy = NULL;
    int rc = data ? sh_asprintf(g->b.err, name, "val_%s@%s", t->t->name, suffix)
                  : SH_FAIL(g->b.err, SH_E_NOMEM, "could not allocate a number");

    if (!rc)
        rc = sh_strdup(*name, &copy, g->b.err);
    if (rc) {
        free(data);
        return rc;
    }
    *data = (float)x;
    return onnx_build_tensor(&g->b, copy, SH_F32, NULL, 0, data, sizeof(*data));
}

/* Is the factor one of the code? Where nothing is said, it may be a parameter as well. */
static bool is_sure(const struct again *g, double a)
{
    return param_kinds_known(g->kinds) || fabs(a) == 2 || fabs(a) == 0.5;
}

static int put_affine(struct again *g, const struct of *t, const struct of *of, double a, double b)
{
    const bool turns = a == -1 && b != 0; /* b - of */
    char *scale = NULL, *shift = NULL, *scaled = NULL;
    int rc = SH_OK;

    if (b != 0)
        rc = add_number(g, t, "shift", b, &shift);
    if (!rc && a != 1 && a != -1)
        rc = add_number(g, t, is_sure(g, a) ? "scale" : ONNX_FACTOR, a, &scale);
    if (!rc && b != 0 && !turns && a != 1)
        rc = sh_asprintf(g->b.err, &scaled, "%s@scaled", t->t->name);
    if (!rc && turns)
        rc = onnx_build_node(&g->b, "Sub", shift, of->t->name, t->t->name, 0);
    if (!rc && !turns && a != 1)
        rc = onnx_build_node(&g->b, scale ? "Mul" : "Neg", of->t->name, scale,
                             scaled ? scaled : t->t->name, 0);
    if (!rc && !turns && b != 0)
        rc = onnx_build_node(&g->b, "Add", scaled ? scaled : of->t->name, shift, t->t->name, 0);
    free(scale);
    free(shift);
    free(scaled);
    return rc;
}

/* ---------------------------------------------------------------- functions of one */

static double sigmoid_of(double x)
{
    return 1 / (1 + exp(-x));
}

static double softplus_of(double x)
{
    return x > 30 ? x : log1p(exp(x));
}

static double reciprocal_of(double x)
{
    return 1 / x;
}

static double positive_of(double x)
{
    return fmax(x, 0);
}

/* NULL: none that is known. */
static const char *find_function(const struct of *x, const struct of *y)
{
    static const struct {
        const char *op;
        double (*of)(double);
    } KNOWN[] = {{"Abs", fabs},
                 {"Exp", exp},
                 {"Log", log},
                 {"Reciprocal", reciprocal_of},
                 {"Relu", positive_of},
                 {"Sigmoid", sigmoid_of},
                 {"Softplus", softplus_of},
                 {"Sqrt", sqrt},
                 {"Tanh", tanh}};

    for (size_t k = 0; k < SH_ARRAY_LEN(KNOWN); k++) {
        bool is = true, same = true;

        for (size_t i = 0; i < x->n && is; i++) {
            const double of = KNOWN[k].of(number_of_init(y, i));

            is = fabs(of - number_of_init(x, i)) <= SAME * fabs(of);
            same &= of ==
                    number_of_init(y, i); /* the absolute of what is above 0: a copy, onnx_tie.h */
        }
        if (is && !same)
            return KNOWN[k].op;
    }
    return NULL;
}

/* Is x the sum of all of y? */
static bool is_sum_of_two(const struct of *x, const struct of *y)
{
    double sum = 0, size = 0;

    for (size_t i = 0; i < y->n; i++) {
        sum += number_of_init(y, i);
        size += fabs(number_of_init(y, i));
    }
    return fabs(sum - number_of_init(x, 0)) <= SAME * fmin(size, 8 * fabs(sum));
}

static int put_sum_of_two(struct again *g, const struct of *t, const struct of *of)
{
    char *all = NULL;
    int rc = sh_asprintf(g->b.err, &all, "%s@sum", t->t->name);

    if (!rc)
        rc = onnx_build_node(&g->b, "ReduceSum", of->t->name, NULL, all, 0);
    if (!rc)
        rc = onnx_build_shaped(&g->b, "Reshape", all, t->t);
    free(all);
    return rc;
}

/* One axis at most has more than one number: however it is turned, the order stays. */
static bool is_param_vector(const struct of *x)
{
    size_t wide = 0;

    for (size_t i = 0; i < x->t->n_dims; i++)
        wide += x->t->dims[i] > 1;
    return wide <= 1;
}

static bool is_param_turned(const struct of *x, const struct of *y)
{
    return x->n == y->n && is_param_vector(x) && is_param_vector(y) && !are_axes_same(x, y) &&
           memcmp(x->data, y->data, x->n * sizeof(float)) == 0;
}

/* ---------------------------------------------------------------- lengths of rows */

/* Is x what the numbers of matrix y, squared, sum up to along this axis? It has as many numbers as
 * there are sums, three at least: fewer could be so by chance. */
static bool are_squares(const struct of *x, const struct of *y, int axis)
{
    const size_t rows = y->t->n_dims == 2 ? (size_t)y->t->dims[0] : 0;
    const size_t columns = rows ? y->n / rows : 0, n = axis ? rows : columns;
    const size_t step = axis ? 1 : columns, next = axis ? columns : 1;
    bool is = n == x->n && n >= MIN_SUMS && is_param_vector(x);

    for (size_t i = 0; i < n && is; i++) {
        double sum = 0;

        for (size_t k = 0; k < y->n / n; k++)
            sum += pow(number_of_init(y, i * next + k * step), 2);
        is = fabs(sum - number_of_init(x, i)) <= SAME * sum;
    }
    return is;
}

/* Is x the length of all of y: p / p.norm()? */
static bool is_length_of(const struct of *x, const struct of *y)
{
    double sum = 0;

    for (size_t i = 0; i < y->n; i++)
        sum += pow(number_of_init(y, i), 2);
    return x->n == 1 && y->n > 1 && fabs(sqrt(sum) - number_of_init(x, 0)) <= SAME * sqrt(sum);
}

static int put_length_of(struct again *g, const struct of *t, const struct of *of)
{
    char *names[3] = {NULL};
    int rc = SH_OK;

    for (int k = 0; k < 3 && !rc; k++)
        rc = sh_asprintf(g->b.err, &names[k], "%s@%s", t->t->name,
                         (const char *const[]){"squares", "sum", "length"}[k]);
    if (!rc)
        rc = onnx_build_node(&g->b, "Mul", of->t->name, of->t->name, names[0], 0);
    if (!rc)
        rc = onnx_build_node(&g->b, "ReduceSum", names[0], NULL, names[1], 0);
    if (!rc)
        rc = onnx_build_node(&g->b, "Sqrt", names[1], NULL, names[2], 0);
    if (!rc)
        rc = onnx_build_shaped(&g->b, "Reshape", names[2], t->t);
    for (int k = 0; k < 3; k++)
        free(names[k]);
    return rc;
}

/* As |x - c|^2 is written: x^2 - 2 x c + c^2, of a code book, of centres. */
static int put_squares(struct again *g, const struct of *t, const struct of *of, int64_t axis)
{
    int64_t *data = malloc(sizeof(*data));
    char *names[3] = {NULL}, *copy = NULL;
    int rc = data ? SH_OK : SH_FAIL(g->b.err, SH_E_NOMEM, "could not allocate a number");

    for (int k = 0; k < 3 && !rc; k++)
        rc = sh_asprintf(g->b.err, &names[k], "%s@%s", t->t->name,
                         (const char *const[]){"axis", "squares", "sums"}[k]);
    if (!rc)
        rc = sh_strdup(names[0], &copy, g->b.err);
    if (!rc) {
        *data = axis;
        rc = onnx_build_tensor(&g->b, copy, SH_I64, &(int64_t){1}, 1, data, sizeof(*data));
        data = NULL;
    }
    if (!rc)
        rc = onnx_build_node(&g->b, "Mul", of->t->name, of->t->name, names[1], 0);
    if (!rc)
        rc = onnx_build_node(&g->b, "ReduceSum", names[1], names[0], names[2], 0);
    if (!rc)
        rc = onnx_build_shaped(&g->b, "Reshape", names[2], t->t);
    free(data);
    for (int k = 0; k < 3; k++)
        free(names[k]);
    return rc;
}

/* ---------------------------------------------------------------- one of many */

/* Is x one number of the list y, or the negative of one? */
static bool find_element(const struct of *x, const struct of *y, size_t *index, bool *negated)
{
    for (*index = 0; x->n == 1 && y->t->n_dims == 1 && *index < y->n; ++*index) {
        *negated = number_of_init(x, 0) == -number_of_init(y, *index);
        if (*negated || number_of_init(x, 0) == number_of_init(y, *index))
            return true;
    }
    return false;
}

static int put_element(struct again *g, const struct of *t, const struct of *of, size_t index,
                       bool negated)
{
    int64_t *data = malloc(sizeof(*data));
    char *names[3] = {NULL}, *copy = NULL;
    const char *last;
    int rc = data ? SH_OK : SH_FAIL(g->b.err, SH_E_NOMEM, "could not allocate a number");

    for (int k = 0; k < 3 && !rc; k++)
        rc = sh_asprintf(g->b.err, &names[k], "%s@%s", t->t->name,
                         (const char *const[]){"index", "taken", "negated"}[k]);
    if (!rc)
        rc = sh_strdup(names[0], &copy, g->b.err);
    if (!rc) {
        *data = (int64_t)index;
        rc = onnx_build_tensor(&g->b, copy, SH_I64, NULL, 0, data, sizeof(*data));
        data = NULL;
    }
    if (!rc)
        rc = onnx_build_node(&g->b, "Gather", of->t->name, names[0], names[1], 0);
    if (!rc && negated)
        rc = onnx_build_node(&g->b, "Neg", names[1], NULL, names[2], 0);
    last = negated ? names[2] : names[1];
    if (!rc)
        rc = onnx_build_shaped(&g->b, "Reshape", last, t->t);
    free(data);
    for (int k = 0; k < 3; k++)
        free(names[k]);
    return rc;
}

/* ---------------------------------------------------------------- two */

/* x = y op z? NULL: by none. */
static const char *find_op(const struct of *x, const struct of *y, const struct of *z)
{
    static const char *const OPS[] = {"Mul", "Add", "Sub"};
    bool is[] = {true, true, true};

    for (size_t i = 0; i < x->n && (is[0] || is[1] || is[2]); i++) {
        const double p = number_of_init(y, i), q = number_of_init(z, i), r = number_of_init(x, i),
                     by[] = {p * q, p + q, p - q};

        for (int k = 0; k < 3; k++)
            is[k] &= fabs(by[k] - r) <= SAME * (k ? fmax(fabs(p), fabs(q)) : fabs(p * q));
    }
    for (int k = 0; k < 3; k++)
        if (is[k])
            return OPS[k];
    return NULL;
}

/* ---------------------------------------------------------------- all */

static int look_among(struct again *g, size_t i, const struct of *const *list, size_t n)
{
    const struct of *t = &g->all[i];
    double a, b;
    size_t index;
    bool negated;
    int rc = SH_OK;

    for (size_t k = 0; k < n && !g->b.gone[i] && !rc; k++) {
        const bool alike = are_axes_same(t, list[k]);
        const char *op = alike ? find_function(t, list[k]) : NULL;

        g->b.gone[i] = true;
        if (op)
            rc = onnx_build_node(&g->b, op, list[k]->t->name, NULL, t->t->name, 0);
        else if (are_numbers_round(list[k])) /* of which only a function was looked for */
            g->b.gone[i] = false;
        else if (alike && find_line(t, list[k], &a, &b))
            rc = put_affine(g, t, list[k], a, b);
        else if (is_param_turned(t, list[k]))
            rc = onnx_build_shaped(&g->b, "Reshape", list[k]->t->name, t->t);
        else if (t->n == 1 && !alike && is_sum_of_two(t, list[k]))
            rc = put_sum_of_two(g, t, list[k]);
        else if (!alike && g->has_axes && is_length_of(t, list[k]))
            rc = put_length_of(g, t, list[k]);
        else if (!alike && find_element(t, list[k], &index, &negated))
            rc = put_element(g, t, list[k], index, negated);
        else if (g->has_axes && (are_squares(t, list[k], 1) || are_squares(t, list[k], 0)))
            rc = put_squares(g, t, list[k], are_squares(t, list[k], 1));
        else
            g->b.gone[i] = false;
    }
    for (size_t k = 0; k < n * n && !g->b.gone[i] && !rc && n <= MAX_ALIKE; k++) {
        const struct of *y = list[k / n], *z = list[k % n];
        const bool alike = are_axes_same(t, y) && are_axes_same(t, z) && !are_numbers_round(y) &&
                           !are_numbers_round(z);
        const char *op = alike ? find_op(t, y, z) : NULL;

        if (op) {
            rc = onnx_build_node(&g->b, op, y->t->name, z->t->name, t->t->name, 0);
            g->b.gone[i] = true;
        }
    }
    return rc;
}

/* May t be computed of this one: has it the same axes or the same vector, or is t one number? */
static bool may_be_of(const struct again *g, const struct of *t, uint32_t k)
{
    const struct of *of = &g->all[k];

    return of != t && of->data && !g->b.gone[k] &&
           ((t->n == 1 && of->n <= MAX_SUM) || are_axes_same(t, of) || is_param_turned(t, of) ||
            (g->has_axes && (are_squares(t, of, 1) || are_squares(t, of, 0)))) &&
           !are_numbers_round(of);
}

/* Is the name among those of a list? */
static bool is_among(const char *list, const char *name)
{
    const size_t len = strlen(name);
    size_t n = 0;

    for (const char *p = param_next_name(list, &n); p; p = param_next_name(p + n + 1, &n))
        if (n == len && memcmp(p, name, n) == 0)
            return true;
    return false;
}

/* Is t a function of a round number, which proves nothing by itself, but which the exporter names:
 * 1 / p? */
static bool is_said_function(const struct again *g, const struct of *t, uint32_t k,
                             const char *said)
{
    const struct of *of = &g->all[k];
    const char *op =
        of != t && of->data && !g->b.gone[k] && are_axes_same(t, of) ? find_function(t, of) : NULL;
    char name[16] = "";

    for (size_t i = 0; op && op[i] && i + 1 < sizeof(name); i++)
        name[i] = (char)tolower((unsigned char)op[i]);
    return op && is_among(said, name);
}

/* "log_s@exp_1": a part of a parameter that is listed (onnx_forms.h). */
static bool has_come_back(const struct of *x, const char *said)
{
    const char *end = x->t && x->data ? strchr(x->t->name, '@') : NULL;
    char param[256];

    if (!end || (size_t)(end - x->t->name) >= sizeof(param))
        return false;
    snprintf(param, sizeof(param), "%.*s", (int)(end - x->t->name), x->t->name);
    return is_among(said, param);
}

/* Of those that it may be computed of: what `said` lists, or without it what has a module's
 * name. */
static int look_at_param(struct again *g, size_t i, const char *said)
{
    const struct of *t = &g->all[i];
    const struct of **list = calloc(g->b.n_file + 1, sizeof(*list));
    size_t found = 0, n = 0;
    int rc = list ? SH_OK : SH_FAIL(g->b.err, SH_E_NOMEM, "could not allocate a list");

    for (const char *p = said ? param_next_name(said, &n) : NULL; p && !rc && found < g->b.n_file;
         p = param_next_name(p + n + 1, &n)) {
        char one[256];
        uint32_t k;

        snprintf(one, sizeof(one), "%.*s", (int)n, p);
        k = names_get(&g->names, one);
        if (k != NAMES_NONE && (may_be_of(g, t, k) || is_said_function(g, t, k, said)))
            list[found++] = &g->all[k];
    }
    for (size_t k = 0; k < g->b.n_file && !rc && found < g->b.n_file; k++)
        if ((said ? g->n_back++ < MAX_BACK && has_come_back(&g->all[k], said) : g->all[k].named) &&
            may_be_of(g, t, (uint32_t)k))
            list[found++] = &g->all[k];
    if (!rc && found)
        rc = look_among(g, i, list, found);
    free(list);
    return rc;
}

/* A single number that people write may be the negative of a parameter: exp(-t) beside t, which is
 * 0.5. The older exporter leaves numbers of the code to other nodes, so -0.5 is something of the
 * module, and where one parameter alone is 0.5, this is the best guess. */
static int look_for_negative(struct again *g, size_t i)
{
    const struct of *t = &g->all[i], *of = NULL;
    size_t found = 0;
    char *name = NULL;
    int rc;

    for (size_t k = 0; k < g->b.n_file && number_of_init(t, 0) != 0; k++) {
        const struct of *one = &g->all[k];

        if (!one->named || !one->data || one->n != 1 ||
            number_of_init(one, 0) != -number_of_init(t, 0))
            continue;
        of = one;
        found++;
    }
    if (found != 1)
        return SH_OK;
    rc = sh_asprintf(g->b.err, &name, "%s@negated", t->t->name);
    if (!rc)
        rc = onnx_build_node(&g->b, "Neg", of->t->name, NULL, name, 0);
    if (!rc)
        rc = onnx_build_shaped(&g->b, "Reshape", name, t->t);
    free(name);
    g->b.gone[i] = !rc;
    g->n_guessed += !rc;
    return rc;
}

static int see_params(struct again *g)
{
    const Onnx__GraphProto *p = g->b.g;
    int rc = SH_OK;

    g->all = calloc(p->n_initializer + 1, sizeof(*g->all));
    if (!g->all)
        return SH_FAIL(g->b.err, SH_E_NOMEM, "could not allocate a list of initializers");
    for (size_t i = 0; i < p->n_input && !rc; i++)
        rc = names_put_first(&g->inputs, p->input[i]->name, (uint32_t)i, g->b.err);
    onnx_source_walk(g->source);
    for (size_t i = 0; i < p->n_initializer && !rc; i++) {
        const Onnx__TensorProto *t = p->initializer[i];
        const size_t n = again_elements(t);

        if (!n || names_get(&g->names, t->name) != NAMES_NONE ||
            names_get(&g->inputs, t->name) != NAMES_NONE)
            continue;
        g->all[i] =
            (struct of){t, onnx_tensor_look(t, g->source), n,
                        !param_is_made_up(t->name) || (g->as_written && param_is_word(t->name))};
        rc = names_put(&g->names, t->name, (uint32_t)i, g->b.err);
    }
    return rc;
}

static int look_at_params(struct again *g)
{
    const Onnx__GraphProto *p = g->b.g;
    const bool known = param_kinds_known(g->kinds);
    int rc = SH_OK;

    for (size_t i = 0; i < p->n_value_info && known && !rc; i++) {
        const char *name = p->value_info[i]->name;
        const uint32_t k = name ? names_get(&g->names, name) : NAMES_NONE;
        char *said =
            k != NAMES_NONE && g->all[k].data && !g->b.gone[k] && !are_numbers_round(&g->all[k])
                ? onnx_folded_from(p->value_info[i])
                : NULL;

        if (said)
            rc = look_at_param(g, k, said);
        free(said);
    }
    for (size_t i = 0; i < g->b.n_file && !known && !rc; i++) {
        if (!g->all[i].data || !param_is_folded(g->all[i].t->name))
            continue;
        if (g->as_written && is_typed(&g->all[i]))
            rc = look_for_negative(g, i);
        if (rc || g->b.gone[i] || are_numbers_round(&g->all[i]))
            continue;
        rc = look_at_param(g, i, NULL);
        g->n_guessed += g->b.gone[i] && is_typed(&g->all[i]);
    }
    return rc;
}

int onnx_again(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
               uint32_t *n_guessed, struct sh_err *err)
{
    struct again g = {.source = source,
                      .kinds = kinds,
                      .as_written = !param_kinds_known(kinds) && onnx_is_as_written(m)};
    int64_t opset = 0;
    int rc = names_init(&g.names, err);

    g.has_axes =
        param_kinds_known(kinds) && !onnx_file_model_opset(m, &opset, NULL) && opset >= AXES;
    if (!rc)
        rc = names_init(&g.inputs, err);
    if (!rc)
        rc = onnx_build_init(&g.b, m->graph, err);
    if (!rc)
        rc = see_params(&g);
    if (!rc)
        rc = look_at_params(&g);
    if (!rc)
        rc = onnx_build_finish(&g.b);
    *n_guessed = g.n_guessed;
    onnx_build_fini(&g.b);
    names_fini(&g.names);
    names_fini(&g.inputs);
    free(g.all);
    return rc;
}
