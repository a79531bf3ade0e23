/* ranges.c - see ranges.h. */
#include "runtime/model/ranges.h"

#include "common/mem.h"
#include "runtime/model/graph_int.h"

#include <float.h>
#include <math.h>

struct range range_none(void)
{
    return (struct range){.lo = INFINITY, .hi = -INFINITY};
}

struct range range_of(double lo, double hi)
{
    return (struct range){.lo = lo, .hi = hi};
}

struct range range_ordinary(void)
{
    return range_of(-RANGE_ORDINARY, RANGE_ORDINARY);
}

struct range range_wild(void)
{
    return (struct range){-INFINITY, INFINITY, true};
}

static bool is_no_range(struct range r)
{
    return r.lo > r.hi;
}

struct range range_join(struct range a, struct range b)
{
    return (struct range){SH_MIN(a.lo, b.lo), SH_MAX(a.hi, b.hi), a.nan || b.nan};
}

bool range_is(struct range r, double v)
{
    return !r.nan && r.lo == v && r.hi == v;
}

bool range_is_finite(struct range r)
{
    return is_no_range(r) || (!r.nan && r.lo >= -DBL_MAX && r.hi <= DBL_MAX);
}

static bool is_ordinary(struct range r)
{
    return !r.nan && r.lo >= -RANGE_ORDINARY && r.hi <= RANGE_ORDINARY;
}

/* A result whose operands are all ordinary, all finite, or neither: sums do not overflow. */
static struct range settle_range(struct range r, const struct range *in, uint32_t n)
{
    bool ordinary = true, finite = true;
    double most = INFINITY;

    for (uint32_t i = 0; i < n; i++) {
        ordinary &= is_ordinary(in[i]);
        finite &= range_is_finite(in[i]);
    }
    if (ordinary)
        most = RANGE_ORDINARY;
    else if (finite)
        most = (double)FLT_MAX;
    r.lo = SH_MIN(SH_MAX(r.lo, -most), most);
    r.hi = SH_MAX(SH_MIN(r.hi, most), -most);
    return r;
}

/* ---------------------------------------------------------------- of one input */

/* Between the values at both ends; fn does not fall. */
static struct range rising(struct range r, double (*fn)(double))
{
    return (struct range){fn(r.lo), fn(r.hi), r.nan};
}

static double range_relu(double x)
{
    return x > 0 ? x : 0;
}

static struct range range_abs(struct range r)
{
    const double a = fabs(r.lo), b = fabs(r.hi);
    const double least = r.lo <= 0 && r.hi >= 0 ? 0 : SH_MIN(a, b);

    return (struct range){least, SH_MAX(a, b), r.nan};
}

static struct range inverse(struct range r)
{
    if (r.lo <= 0 && r.hi >= 0)
        return range_wild();
    return (struct range){1 / r.hi, 1 / r.lo, r.nan};
}

static struct range truth(struct range r)
{
    if (range_is(r, 0))
        return range_of(0, 0);
    return range_of(r.nan || (r.lo <= 0 && r.hi >= 0) ? 0 : 1, 1);
}

static bool is_whole_type(enum sh_dtype t)
{
    return t != SH_F32 && t != SH_F64 && t != SH_F16 && t != SH_BF16;
}

/* Has whole type t all numbers of r? */
static bool type_holds(enum sh_dtype t, struct range r)
{
    const bool has_sign = t == SH_I8 || t == SH_I16 || t == SH_I32 || t == SH_I64;
    const double end = ldexp(1, 8 * (int)sh_dtype_bytes(t) - has_sign);

    return r.lo >= (has_sign ? -end : 0) && r.hi < end;
}

static struct range cast(const struct graph_node *n, struct range r)
{
    int64_t to = SH_F32;

    if (graph_int(n, "to", SH_F32, &to, NULL))
        return range_wild();
    if (to == SH_BOOL)
        return truth(r);
    if (!is_whole_type((enum sh_dtype)to))
        return r;
    if (!range_is_finite(r) ||
        !type_holds((enum sh_dtype)to, r)) /* some number, nobody knows which */
        return range_of(-(double)FLT_MAX, (double)FLT_MAX);
    return range_of(floor(r.lo), ceil(r.hi));
}

static struct range clip_range(const struct graph_node *n, struct range r)
{
    double least = -INFINITY, most = INFINITY;

    if (graph_float(n, "min", least, &least, NULL) || graph_float(n, "max", most, &most, NULL))
        return range_wild();
    return (struct range){SH_MIN(SH_MAX(r.lo, least), most), SH_MIN(SH_MAX(r.hi, least), most),
                          r.nan};
}

enum bound { SAME, ZERO_TO_ONE, UNIT, FINITE };

/* What else is known of a function: where it lies, whether that of 0 is 0, and whether that of an
 * infinity is no number. */
static const struct {
    const char *op;
    enum bound bound;
    bool keeps_zero, turns;
} FUNCTIONS[] = {
    {"Sigmoid", ZERO_TO_ONE, false, false},
    {"HardSigmoid", ZERO_TO_ONE, false, false},
    {"Tanh", UNIT, true, false},
    {"Erf", UNIT, true, false},
    {"Sin", UNIT, true, true},
    {"Cos", UNIT, false, true},
    {"Sign", UNIT, true, false},
    {"Atan", FINITE, true, false},
    {"Gelu", FINITE, true, false},
    {"Elu", FINITE, true, false},
    {"LeakyRelu", FINITE, true, false},
    {"HardSwish", FINITE, true, false},
    {"Softplus", FINITE, false, false},
    {"Identity", SAME, true, false},
};

static bool by_function(const char *op, struct range x, struct range *out)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(FUNCTIONS); i++) {
        if (strcmp(FUNCTIONS[i].op, op) != 0)
            continue;
        *out = x;
        if (FUNCTIONS[i].keeps_zero && range_is(x, 0))
            return true;
        if (FUNCTIONS[i].bound == FINITE)
            *out = range_is_finite(x) ? settle_range(range_of(-FLT_MAX, FLT_MAX), &x, 1)
                                      : range_wild();
        else if (FUNCTIONS[i].bound != SAME)
            *out = (struct range){FUNCTIONS[i].bound == UNIT ? -1 : 0, 1,
                                  x.nan || (FUNCTIONS[i].turns && !range_is_finite(x))};
        return true;
    }
    return false;
}

static bool unary(const struct graph_node *n, struct range x, struct range *out)
{
    const char *op = n->op;

    if (strcmp(op, "Cast") == 0)
        *out = cast(n, x);
    else if (strcmp(op, "Clip") == 0)
        *out = clip_range(n, x);
    else if (strcmp(op, "Not") == 0)
        *out = range_of(1 - truth(x).hi, 1 - truth(x).lo);
    else if (strcmp(op, "Neg") == 0)
        *out = (struct range){-x.hi, -x.lo, x.nan};
    else if (strcmp(op, "Abs") == 0)
        *out = range_abs(x);
    else if (strcmp(op, "Relu") == 0)
        *out = rising(x, range_relu);
    else if (strcmp(op, "Floor") == 0)
        *out = rising(x, floor);
    else if (strcmp(op, "Ceil") == 0)
        *out = rising(x, ceil);
    else if (strcmp(op, "Round") == 0)
        *out = (struct range){floor(x.lo), ceil(x.hi), x.nan};
    else if (strcmp(op, "Exp") == 0)
        *out = x.hi < 80 ? rising(x, exp) : (struct range){exp(x.lo), INFINITY, x.nan};
    else if (strcmp(op, "Sqrt") == 0)
        *out = x.lo >= 0 ? rising(x, sqrt) : range_wild();
    else if (strcmp(op, "Log") == 0)
        *out = x.lo >= 0 ? rising(x, log) : range_wild();
    else if (strcmp(op, "Reciprocal") == 0)
        *out = inverse(x);
    else
        return by_function(op, x, out);
    return true;
}

/* ---------------------------------------------------------------- of two and three */

static struct range add_ranges(struct range a, struct range b)
{
    const struct range both[] = {a, b};
    struct range r = {a.lo + b.lo, a.hi + b.hi, a.nan || b.nan};

    if (isnan(r.lo) || isnan(r.hi)) /* infinities of both signs */
        return range_wild();
    r.nan |= (a.lo == -INFINITY && b.hi == INFINITY) || (a.hi == INFINITY && b.lo == -INFINITY);
    return settle_range(r, both, 2);
}

static struct range mul(struct range a, struct range b)
{
    const struct range both[] = {a, b};
    const double c[] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
    struct range r = range_none();

    if (!range_is_finite(a) || !range_is_finite(b))
        return range_wild();
    for (size_t i = 0; i < SH_ARRAY_LEN(c); i++)
        r = range_join(r, range_of(c[i], c[i]));
    return settle_range(r, both, 2);
}

/* Of whole numbers too, whose quotients are cut. */
static struct range quotient(struct range a, struct range b)
{
    struct range r = mul(a, inverse(b));

    return range_is(r, 0) ? r : (struct range){floor(r.lo), ceil(r.hi), r.nan};
}

static struct range range_power(struct range a, struct range b)
{
    const bool fine = range_is_finite(a) && range_is_finite(b) && b.lo == b.hi && b.lo >= 0;
    const bool whole = fine && floor(b.lo) == b.lo;

    if (!fine || (a.lo < 0 && !whole))
        return range_wild();
    if (range_is(a, 0) && b.lo > 0)
        return a;
    if (a.lo >= 0 || fmod(b.lo, 2) == 0)
        return settle_range(range_of(0, (double)FLT_MAX), &a, 1);
    return settle_range(range_of(-(double)FLT_MAX, (double)FLT_MAX), &a, 1);
}

static struct range bools(bool never, bool always)
{
    return range_of(always ? 1 : 0, never ? 0 : 1);
}

static struct range range_less(struct range a, struct range b, bool or_equal)
{
    if (a.nan || b.nan)
        return range_of(0, 1);
    if (or_equal)
        return bools(a.lo > b.hi, a.hi <= b.lo);
    return bools(a.lo >= b.hi, a.hi < b.lo);
}

static struct range range_equal(struct range a, struct range b)
{
    const bool apart = a.hi < b.lo || b.hi < a.lo;

    if (a.nan || b.nan)
        return range_of(0, apart ? 0 : 1);
    return bools(apart, a.lo == a.hi && range_is(b, a.lo));
}

static bool binary_range(const struct graph_node *n, struct range a, struct range b,
                         struct range *out)
{
    const char *op = n->op;
    const struct range ta = truth(a), tb = truth(b);

    if (strcmp(op, "Add") == 0)
        *out = add_ranges(a, b);
    else if (strcmp(op, "Sub") == 0)
        *out = add_ranges(a, (struct range){-b.hi, -b.lo, b.nan});
    else if (strcmp(op, "Mul") == 0)
        *out = mul(a, b);
    else if (strcmp(op, "Div") == 0)
        *out = quotient(a, b);
    else if (strcmp(op, "Pow") == 0)
        *out = range_power(a, b);
    else if (strcmp(op, "Min") == 0)
        *out = (struct range){SH_MIN(a.lo, b.lo), SH_MIN(a.hi, b.hi), a.nan || b.nan};
    else if (strcmp(op, "Max") == 0)
        *out = (struct range){SH_MAX(a.lo, b.lo), SH_MAX(a.hi, b.hi), a.nan || b.nan};
    else if (strcmp(op, "Equal") == 0)
        *out = range_equal(a, b);
    else if (strcmp(op, "Less") == 0)
        *out = range_less(a, b, false);
    else if (strcmp(op, "LessOrEqual") == 0)
        *out = range_less(a, b, true);
    else if (strcmp(op, "Greater") == 0)
        *out = range_less(b, a, false);
    else if (strcmp(op, "GreaterOrEqual") == 0)
        *out = range_less(b, a, true);
    else if (strcmp(op, "And") == 0)
        *out = range_of(SH_MIN(ta.lo, tb.lo), SH_MIN(ta.hi, tb.hi));
    else if (strcmp(op, "Or") == 0)
        *out = range_of(SH_MAX(ta.lo, tb.lo), SH_MAX(ta.hi, tb.hi));
    else if (strcmp(op, "Xor") == 0)
        *out = range_of(0, 1);
    else
        return false;
    return true;
}

bool range_each(const struct graph_node *n, const struct range *in, uint32_t n_in,
                struct range *out)
{
    for (uint32_t i = 0; i < n_in; i++)
        if (is_no_range(in[i])) {
            *out = range_none();
            return true;
        }
    if (n_in == 1)
        return unary(n, in[0], out);
    if (n_in == 2)
        return binary_range(n, in[0], in[1], out);
    if (n_in != 3 || strcmp(n->op, "Where") != 0)
        return false;
    *out = truth(in[0]).hi == 0 ? in[2] : truth(in[0]).lo == 1 ? in[1] : range_join(in[1], in[2]);
    return true;
}

/* ---------------------------------------------------------------- sums */

struct range range_dot(struct range a, struct range b)
{
    const struct range both[] = {a, b};

    if (is_no_range(a) || is_no_range(b))
        return range_none();
    if (!range_is_finite(a) || !range_is_finite(b))
        return range_wild();
    if (range_is(a, 0) || range_is(b, 0))
        return range_of(0, 0);
    return settle_range(range_of(-(double)FLT_MAX, (double)FLT_MAX), both, 2);
}

struct range range_sum(struct range a, double k)
{
    struct range r = {SH_MIN(a.lo, k * a.lo), SH_MAX(a.hi, k * a.hi), a.nan};

    if (is_no_range(a))
        return a;
    r.nan |= a.lo == -INFINITY && a.hi == INFINITY;
    return settle_range(r, &a, 1);
}
