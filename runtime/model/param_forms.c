/* param_forms.c - see param_forms.h. */
#include "runtime/model/param_forms.h"

#include "common/mem.h"
#include "runtime/model/param_rules.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- functions */

static double form_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double logit(double x)
{
    return log(x) - log1p(-x);
}

static double form_softplus(double x)
{
    return x > 30 ? x : log1p(exp(x));
}

static double softplus_back(double x)
{
    return x > 30 ? x : log(expm1(x));
}

static double negated(double x)
{
    return -x;
}

static double form_reciprocal(double x)
{
    return 1 / x;
}

static double form_squared(double x)
{
    return x * x;
}

static double form_positive(double x)
{
    return fmax(x, 0);
}

/* The sign of what was below 0 is lost. Of an absolute it makes no difference: with its sign the
 * parameter goes the other way, and so its absolute the same. What a Relu held at 0 has no gradient
 * on either side of the step that it would have to take, and stays. */
static double not_below(double x)
{
    return x >= 0 ? x : NAN;
}

static double form_same(double x)
{
    return x;
}

/* of: NULL of a Softmax, whose numbers have a sum of 1 along an axis, and of its logarithm; any
 * number may be added to all of them before. */
static const struct param_step {
    const char *op, *onnx;
    double (*of)(double), (*back)(double);
} STEPS[] = {
    {"abs", "Abs", fabs, not_below},
    {"exp", "Exp", exp, log},
    {"log", "Log", log, exp},
    {"log_softmax", "LogSoftmax", NULL, form_same},
    {"neg", "Neg", negated, negated},
    {"reciprocal", "Reciprocal", form_reciprocal, form_reciprocal},
    {"relu", "Relu", form_positive, not_below},
    {"sigmoid", "Sigmoid", form_sigmoid, logit},
    {"softmax", "Softmax", NULL, log},
    {"softplus", "Softplus", form_softplus, softplus_back},
    {"sqrt", "Sqrt", sqrt, form_squared},
    {"tanh", "Tanh", tanh, atanh},
};

const char *param_form_op(const struct param_form *f, int step)
{
    return f->steps[step]->onnx;
}

/* ---------------------------------------------------------------- names */

static const struct param_step *find_step(const char *name)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(STEPS); i++)
        if (param_is_called(name, STEPS[i].op))
            return &STEPS[i];
    return NULL;
}

static bool is_any(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (param_is_called(name, list[i]))
            return true;
    return false;
}

/* Each number of the result is one of the parameter's, and none is there twice. */
static bool is_move_name(const char *name)
{
    static const char *const MOVES[] = {
        "_to_copy", "clone",     "contiguous", "flatten",   "getitem", "narrow",
        "permute",  "reshape",   "select",     "slice",     "squeeze", "t",
        "to",       "transpose", "unflatten",  "unsqueeze", "view"};

    return is_any(name, MOVES, SH_ARRAY_LEN(MOVES));
}

static bool is_bound(const char *name)
{
    static const char *const BOUNDS[] = {"clamp", "clamp_max", "clamp_min"};

    return is_any(name, BOUNDS, SH_ARRAY_LEN(BOUNDS));
}

/* Values inside of onnxscript's softplus. */
static bool is_of_softplus(const char *name)
{
    static const char *const PARTS[] = {"beta", "beta_0",      "beta_0_cast", "beta_cast",
                                        "tmp",  "self_scaled", "threshold",   "threshold_cast",
                                        "tmp_1"};

    return is_any(name, PARTS, SH_ARRAY_LEN(PARTS));
}

static bool is_all_digits(const char *name)
{
    return strncmp(name, "val_", 4) == 0 || strncmp(name, "scalar_tensor", 13) == 0;
}

/* What the names of a list are. */
struct found {
    bool numbers, moves, softplus, parts; /* parts: of a softplus */
};

static void put_last(struct param_form *f, const struct param_step *step)
{
    int n = 0;

    for (int i = 0; i < f->n_steps; i++)
        if (f->steps[i] != step)
            f->steps[n++] = f->steps[i];
    f->steps[n] = step;
}

/* One name of the list, or (own) that of the constant; false: not what can be undone. */
static bool add_form_name(struct param_form *f, struct found *found, const char *name, bool own)
{
    const struct param_step *step = find_step(name);
    const bool is_softplus = step && step->of == form_softplus;

    if (!step && !is_move_name(name) && !is_bound(name) && !is_all_digits(name) &&
        !is_of_softplus(name))
        return false;
    found->numbers |= is_all_digits(name);
    found->moves |= is_move_name(name);
    found->parts |= is_of_softplus(name);
    f->is_bounded |= is_bound(name);
    if (is_softplus && found->softplus) { /* an inner value of it has its name too */
        if (own)
            put_last(f, step);
        return true;
    }
    found->softplus |= is_softplus;
    if (step && f->n_steps == PARAM_FORM_STEPS)
        return false;
    if (step)
        f->steps[f->n_steps++] = step;
    return !own || step || found->moves || f->is_bounded;
}

static bool copy_form_name(char to[static PARAM_FORM_NAME], const char *from, size_t n)
{
    if (n == 0 || n >= PARAM_FORM_NAME)
        return false;
    memcpy(to, from, n);
    to[n] = '\0';
    return true;
}

/* The names of a list in turn, each as a text of its own. */
struct said {
    const char *at; /* NULL: at the end */
    size_t n;
    char one[PARAM_FORM_NAME];
    bool fits; /* false: the last one was too long, and ended it */
};

static struct said names_in_list(const char *list)
{
    struct said w = {.fits = true};

    w.at = param_next_name(list, &w.n);
    return w;
}

static bool next_name(struct said *w)
{
    if (!w->at)
        return false;
    w->fits = copy_form_name(w->one, w->at, w->n);
    w->at = w->fits ? param_next_name(w->at + w->n + 1, &w->n) : NULL;
    return w->fits;
}

static bool has_form_step(const struct param_form *f, double (*of)(double))
{
    bool has = false;

    for (int k = 0; k < f->n_steps; k++)
        has |= f->steps[k]->of == of;
    return has;
}

bool param_form_loses_signs(const struct param_form *f)
{
    return has_form_step(f, fabs);
}

bool param_form_read(const char *name, const char *list, const struct param_kinds *kinds,
                     struct param_form *out)
{
    struct said names = names_in_list(list);
    struct found found = {0};

    *out = (struct param_form){.param = ""};
    while (next_name(&names)) {
        const enum graph_said is = param_kind(kinds, names.one);

        if (is == GRAPH_SAID_PARAM && !out->param[0])
            sh_strlcpy(out->param, names.one, sizeof(out->param));
        else if (is || !add_form_name(out, &found, names.one, false))
            return false;
    }
    if (!names.fits || !add_form_name(out, &found, name, true) || !out->param[0] ||
        out->n_steps == 0)
        return false;
    out->n_free = out->n_steps - (find_step(name) != NULL);
    if (found.parts && !found.softplus)
        return false;
    if (has_form_step(out, fabs) &&
        has_form_step(out, log)) /* |log p|: p and 1 / p are not alike */
        return false;
    return !found.numbers || found.moves || found.softplus || out->is_bounded;
}

void param_form_softmax(struct param_form *out)
{
    *out = (struct param_form){.param = "", .steps = {find_step("softmax")}, .n_steps = 1};
}

/* Numbers that are there several times. */
static bool is_repeat(const char *name)
{
    static const char *const REPEATS[] = {"cat",    "expand", "expand_as", "flip",
                                          "repeat", "roll",   "stack",     "tile"};

    return is_move_name(name) || is_any(name, REPEATS, SH_ARRAY_LEN(REPEATS));
}

bool param_form_signs(const char *name, const char *list, const struct param_kinds *kinds)
{
    bool negates = param_is_called(name, "neg"), has_param = false;
    struct said names = names_in_list(list);
    const char *const one = names.one;

    if (!negates && !is_repeat(name))
        return false;
    while (next_name(&names)) {
        const enum graph_said is = param_kind(kinds, one);

        has_param |= is == GRAPH_SAID_PARAM;
        negates |= is == GRAPH_SAID_NOTHING && param_is_called(one, "neg");
        if (is == GRAPH_SAID_BUFFER || (is == GRAPH_SAID_NOTHING && !is_repeat(one) &&
                                        !is_all_digits(one) && !param_is_called(one, "neg")))
            return false;
    }
    return names.fits && has_param && negates;
}

/* It takes some of the numbers. */
static bool is_part(const char *name)
{
    static const char *const PARTS[] = {"getitem", "narrow", "select", "slice"};

    return is_any(name, PARTS, SH_ARRAY_LEN(PARTS));
}

/* One name of the list, or that of the constant; false: no move of all numbers. */
static bool add_param_move(struct param_move *m, const char *name)
{
    static const char *const REPEATS[] = {"expand", "expand_as", "repeat"};
    static const char *const TURNS[] = {"permute", "t", "transpose"};
    const bool repeats = is_any(name, REPEATS, SH_ARRAY_LEN(REPEATS));

    m->repeats |= repeats;
    m->turns |= is_any(name, TURNS, SH_ARRAY_LEN(TURNS));
    return repeats || (is_move_name(name) && !is_part(name));
}

bool param_form_moved(const char *name, const char *list, const struct param_kinds *kinds,
                      struct param_move *out)
{
    struct said names = names_in_list(list);

    *out = (struct param_move){.param = ""};
    if (!add_param_move(out, name) && !is_all_digits(name) && !param_is_cast_weight(name, list))
        return false;
    while (next_name(&names)) {
        const enum graph_said is = param_kind(kinds, names.one);

        if (is == GRAPH_SAID_PARAM && !out->param[0])
            sh_strlcpy(out->param, names.one, sizeof(out->param));
        else if (is || !(is_all_digits(names.one) || add_param_move(out, names.one)))
            return false;
    }
    return names.fits && out->param[0] && (out->turns || !is_all_digits(name));
}

bool param_form_part(const char *name, const char *list, const struct param_kinds *kinds,
                     char param[static PARAM_FORM_NAME])
{
    struct said names = names_in_list(list);

    param[0] = '\0';
    if (!is_move_name(name))
        return false;
    while (next_name(&names)) {
        const enum graph_said is = param_kind(kinds, names.one);

        if (is == GRAPH_SAID_PARAM && !param[0])
            sh_strlcpy(param, names.one, PARAM_FORM_NAME);
        else if (is || !(is_all_digits(names.one) || is_move_name(names.one)))
            return false;
    }
    return names.fits && param[0];
}

bool param_form_is_one(const char *name, const char *list, const struct param_kinds *kinds)
{
    struct param_move is;
    size_t n = 0;
    const char *first = param_next_name(list, &n);
    char one[PARAM_FORM_NAME];

    if (param_form_moved(name, list, kinds, &is))
        return !is.repeats;
    return is_all_digits(name) && first && !param_next_name(first + n + 1, &n) &&
           copy_form_name(one, first, strcspn(first, "'")) &&
           param_kind(kinds, one) == GRAPH_SAID_PARAM;
}

bool param_form_shifted(const char *name, const char *list, const struct param_kinds *kinds,
                        char param[static PARAM_FORM_NAME])
{
    static const char *const SUMS[] = {"add", "rsub", "sub"};
    struct param_move move = {.param = ""};
    bool sums = is_any(name, SUMS, SH_ARRAY_LEN(SUMS));
    struct said names = names_in_list(list);
    const char *const one = names.one;

    bool has_number = false;

    param[0] = '\0';
    if (!sums && !add_param_move(&move, name))
        return false;
    while (next_name(&names)) {
        const enum graph_said is = param_kind(kinds, one);

        if (is == GRAPH_SAID_PARAM && !param[0]) {
            sh_strlcpy(param, one, PARAM_FORM_NAME);
            continue;
        }
        if (is)
            return false;
        sums |= is_any(one, SUMS, SH_ARRAY_LEN(SUMS));
        has_number |= is_all_digits(one);
        if (!is_any(one, SUMS, SH_ARRAY_LEN(SUMS)) && !is_all_digits(one) &&
            !add_param_move(&move, one))
            return false;
    }
    return names.fits && sums && has_number && param[0] && !move.repeats;
}

bool param_form_expanded(const char *name, const char *list, const struct param_kinds *kinds,
                         char param[static PARAM_FORM_NAME])
{
    size_t n = 0;

    param[0] = '\0';
    if (!param_is_called(name, "expand") && !param_is_called(name, "expand_as"))
        return false;
    for (const char *p = param_next_name(list, &n); p; p = param_next_name(p + n + 1, &n)) {
        char one[PARAM_FORM_NAME];
        enum graph_said is;

        if (!copy_form_name(one, p, n))
            return false;
        is = param_kind(kinds, one);
        if (is == GRAPH_SAID_PARAM && !param[0])
            memcpy(param, one, n + 1);
        else if (is || !is_all_digits(one))
            return false;
    }
    return param[0];
}

static bool is_join(const char *name)
{
    static const char *const JOINS[] = {"cat", "stack"};

    return is_any(name, JOINS, SH_ARRAY_LEN(JOINS));
}

bool param_form_taken(const char *name, const char *list, const struct param_kinds *kinds,
                      char param[static PARAM_FORM_NAME], char row[static PARAM_FORM_NAME])
{
    bool has_softmax = false, joins = false;
    size_t n = 0, len = 0, params = 0;

    param[0] = row[0] = '\0';
    if (!is_move_name(name))
        return false;
    for (const char *p = param_next_name(list, &n); p; p = param_next_name(p + n + 1, &n)) {
        char one[PARAM_FORM_NAME];
        enum graph_said is;
        bool is_softmax;

        if (!copy_form_name(one, p, n))
            return false;
        is = param_kind(kinds, one);
        is_softmax = is == GRAPH_SAID_NOTHING && param_is_called(one, "softmax");
        joins |= is == GRAPH_SAID_NOTHING && is_join(one);
        if (is == GRAPH_SAID_NOTHING && !is_softmax &&
            (is_all_digits(one) || is_move_name(one) || is_join(one)))
            continue;
        if (is == GRAPH_SAID_BUFFER || (is == GRAPH_SAID_NOTHING && !is_softmax) ||
            len + n + 2 > PARAM_FORM_NAME)
            return false;
        if (is == GRAPH_SAID_PARAM && params++ == 0)
            memcpy(param, one, n + 1);
        has_softmax |= is_softmax;
        len += (size_t)snprintf(row + len, PARAM_FORM_NAME - len, "%s ", one);
    }
    return has_softmax && (params == 1 || (params > 1 && joins));
}

/* Other buffers have numbers besides 0 and 1: who is whose neighbour, noise. */
static bool is_mask_buffer(const char *buffer)
{
    return strstr(buffer, "mask") || strstr(buffer, "tril") || strstr(buffer, "triu");
}

/* Leaves one side of a diagonal. */
static bool is_cut(const char *name)
{
    return param_is_called(name, "tril") || param_is_called(name, "triu");
}

bool param_form_product(const char *name, const char *list, const struct param_kinds *kinds,
                        char param[static PARAM_FORM_NAME], bool *cuts)
{
    bool has_product = param_is_called(name, "mul"), has_buffer = false;
    size_t n = 0;

    *cuts = is_cut(name);
    param[0] = '\0';
    if (!has_product && !*cuts && !is_move_name(name))
        return false;
    for (const char *p = param_next_name(list, &n); p; p = param_next_name(p + n + 1, &n)) {
        char one[PARAM_FORM_NAME];
        enum graph_said is;

        if (!copy_form_name(one, p, n))
            return false;
        is = param_kind(kinds, one);
        if (is == GRAPH_SAID_PARAM && param[0])
            return false;
        if (is == GRAPH_SAID_PARAM)
            memcpy(param, one, n + 1);
        else if (is == GRAPH_SAID_NOTHING && !is_move_name(one) && !is_all_digits(one) &&
                 !is_cut(one) && !param_is_called(one, "mul"))
            return false;
        if (is == GRAPH_SAID_BUFFER && !is_mask_buffer(one))
            return false;
        has_buffer |= is == GRAPH_SAID_BUFFER;
        has_product |= param_is_called(one, "mul");
        *cuts |= is == GRAPH_SAID_NOTHING && is_cut(one);
    }
    return param[0] && has_buffer == has_product && (has_product || *cuts);
}

bool param_form_of_zeros(const char *name, const char *list, const struct param_kinds *kinds)
{
    static const char *const ZEROS[] = {"new_zeros", "zeros", "zeros_like"};
    bool has_product = param_is_called(name, "mul"), has_zeros = false;
    size_t n = 0;

    if (!has_product && !is_move_name(name))
        return false;
    for (const char *p = param_next_name(list, &n); p; p = param_next_name(p + n + 1, &n)) {
        char one[PARAM_FORM_NAME];
        bool zeros;

        if (!copy_form_name(one, p, n))
            return false;
        if (param_kind(kinds, one))
            continue;
        zeros = is_any(one, ZEROS, SH_ARRAY_LEN(ZEROS));
        has_zeros |= zeros;
        has_product |= param_is_called(one, "mul");
        if (!zeros && !is_move_name(one) && !is_bound(one) && !is_all_digits(one) &&
            !param_is_called(one, "mul") && !param_is_called(one, "expand") &&
            !param_is_called(one, "matmul"))
            return false;
    }
    return has_product && has_zeros;
}

bool param_form_pair(const char *name, const char *list, const struct param_kinds *kinds,
                     char param[static PARAM_FORM_NAME], char buffer[static PARAM_FORM_NAME])
{
    size_t n = 0;

    param[0] = buffer[0] = '\0';
    for (const char *p = param_next_name(list, &n); p; p = param_next_name(p + n + 1, &n)) {
        char one[PARAM_FORM_NAME];
        char *to;

        if (!copy_form_name(one, p, n) || param_kind(kinds, one) == GRAPH_SAID_NOTHING)
            return false;
        to = param_kind(kinds, one) == GRAPH_SAID_PARAM ? param : buffer;
        if (to[0])
            return false;
        memcpy(to, one, n + 1);
    }
    return param[0] && buffer[0] && param_is_called(name, "mul");
}

bool param_form_sum(const char *name, const char *list, const struct param_kinds *kinds,
                    char of[static 2][PARAM_FORM_NAME])
{
    int sums = param_is_called(name, "add"), params = 0;
    size_t n = 0;

    if (!sums && !is_move_name(name))
        return false;
    for (const char *p = param_next_name(list, &n); p; p = param_next_name(p + n + 1, &n)) {
        char one[PARAM_FORM_NAME];
        enum graph_said is;

        if (!copy_form_name(one, p, n))
            return false;
        is = param_kind(kinds, one);
        if (is == GRAPH_SAID_PARAM && params < 2)
            memcpy(of[params], one, n + 1);
        params += is == GRAPH_SAID_PARAM;
        sums += is == GRAPH_SAID_NOTHING && param_is_called(one, "add");
        if (is == GRAPH_SAID_BUFFER || (is == GRAPH_SAID_NOTHING && !param_is_called(one, "add") &&
                                        !is_repeat(one) && !is_all_digits(one)))
            return false;
    }
    return params == 2 && sums == 1;
}

/* ---------------------------------------------------------------- what is lost */

/* What the names of a list say of how the constant was made. */
struct made {
    int params, sums, parts, numbers;
    bool changes, looks_up, is_of_floats;
};

/* Moves, and what the code computes of nothing; other operations change what goes through them. */
static bool keeps_numbers(const char *name)
{
    static const char *const KEEPS[] = {"_unsafe_view",
                                        "alias",
                                        "as_strided",
                                        "broadcast_to",
                                        "concat",
                                        "detach",
                                        "diagonal",
                                        "hstack",
                                        "lift_fresh",
                                        "lift_fresh_copy",
                                        "movedim",
                                        "repeat_interleave",
                                        "reshape_as",
                                        "resolve_conj",
                                        "select_scatter",
                                        "slice_scatter",
                                        "split_with_sizes",
                                        "swapaxes",
                                        "type_as",
                                        "unbind",
                                        "unfold",
                                        "view_as",
                                        "view_as_complex",
                                        "view_as_real",
                                        "vstack"};
    static const char *const OF_OTHERS[] = {"cumsum", "tmp"}; /* makers, but of a parameter too */

    if (is_any(name, OF_OTHERS, SH_ARRAY_LEN(OF_OTHERS)))
        return false;
    return param_is_moved(name) || param_is_maker(name) || is_all_digits(name) ||
           is_any(name, KEEPS, SH_ARRAY_LEN(KEEPS));
}

static void add_made(struct made *m, const char *name, const struct param_kinds *kinds)
{
    static const char *const SUMS[] = {"add", "sub", "rsub"};
    static const char *const LOOKS_UP[] = {"embedding", "gather", "index", "index_select"};
    static const char *const OF_FLOATS[] = {
        "bmm",    "dot",    "einsum",     "erf",     "gelu",  "kron",     "layer_norm",
        "linear", "matmul", "mm",         "mv",      "rsqrt", "sigmoid",  "silu",
        "sin",    "cos",    "reciprocal", "softmax", "sqrt",  "softplus", "tanh"};
    const bool sums = is_any(name, SUMS, SH_ARRAY_LEN(SUMS));
    const bool looks_up = is_any(name, LOOKS_UP, SH_ARRAY_LEN(LOOKS_UP));

    m->params += param_kind(kinds, name) == GRAPH_SAID_PARAM;
    if (param_kind(kinds, name))
        return;
    m->sums += sums;
    m->parts += is_part(name);
    m->numbers += is_all_digits(name) || param_is_maker(name);
    m->changes |= !sums && !looks_up && !keeps_numbers(name);
    m->looks_up |= looks_up;
    m->is_of_floats |= is_any(name, OF_FLOATS, SH_ARRAY_LEN(OF_FLOATS));
}

bool param_form_is_lost(const char *name, const char *list, const struct param_kinds *kinds)
{
    struct made m = {0};
    size_t n = 0;

    if (param_is_cast_weight(name, list))
        return false;
    add_made(&m, name, kinds);
    for (const char *p = param_next_name(list, &n); p; p = param_next_name(p + n + 1, &n)) {
        char one[PARAM_FORM_NAME];

        if (copy_form_name(one, p, n))
            add_made(&m, one, kinds);
    }
    if (m.params == 0)
        return false;
    if (m.looks_up)
        return m.is_of_floats;
    return m.changes || (m.sums > 0 && (m.params > 1 || m.parts > 1 || m.numbers == 0));
}

bool param_form_is_letter(const char *list, const struct param_kinds *kinds)
{
    int letters = 0, params = 0;
    size_t n = 0;

    for (const char *p = param_next_name(list, &n); p; p = param_next_name(p + n + 1, &n)) {
        char one[PARAM_FORM_NAME];
        const char *dot;

        if (!copy_form_name(one, p, n) || param_kind(kinds, one) != GRAPH_SAID_PARAM)
            continue;
        dot = strrchr(one, '.');
        params++;
        letters += strlen(dot ? dot + 1 : one) == 1;
    }
    return params == 1 && letters == 1;
}

/* ---------------------------------------------------------------- numbers */

#define SAME 1e-5

/* Has a bound held some numbers? Then they are equal; one alone is round. */
static bool was_held(const void *x, int64_t n)
{
    const double first = (double)param_number(x, 0);
    float lo = HUGE_VALF, hi = -HUGE_VALF;
    int64_t at_lo = 0, at_hi = 0;

    if (n == 1)
        return fabs(first - round(first)) <= SAME * fabs(first);
    for (int64_t i = 0; i < n; i++) {
        lo = fminf(lo, param_number(x, i));
        hi = fmaxf(hi, param_number(x, i));
    }
    for (int64_t i = 0; i < n; i++) {
        at_lo += param_number(x, i) == lo;
        at_hi += param_number(x, i) == hi;
    }
    return at_lo > 1 || at_hi > 1;
}

/* The only axis along which all sums are 1; -1: none, or several. */
static int axis_of_sums(const void *x, bool are_logs, int rank, const int64_t *dims)
{
    int64_t n = 1, inner = 1;
    int found = -1;

    for (int i = 0; i < rank; i++)
        n *= dims[i];
    for (int a = rank; a-- > 0; inner *= dims[a]) {
        bool ones = dims[a] > 1;

        for (int64_t line = 0; line < n / dims[a] && ones; line++) {
            const int64_t from = line / inner * inner * dims[a] + line % inner;
            double sum = 0;

            for (int64_t k = 0; k < dims[a]; k++) {
                const double p = (double)param_number(x, from + k * inner);

                sum += are_logs ? exp(p) : p;
            }
            ones = fabs(sum - 1) <= SAME;
        }
        if (ones && found >= 0)
            return -1;
        found = ones ? a : found;
    }
    return found;
}

/* By the steps as they stand. */
static bool undo(const struct param_form *f, const void *x, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        const double is = (double)param_number(x, i);
        double back = is, again;

        for (int k = f->n_steps; k-- > 0;)
            back = f->steps[k]->back(back);
        out[i] = (float)back;
        again = (double)out[i];
        for (int k = 0; k < f->n_steps; k++)
            again = f->steps[k]->of                  ? f->steps[k]->of(again)
                    : f->steps[k]->back == form_same ? again
                                                     : exp(again);
        if (!isfinite(out[i]) || !(fabs(again - is) <= SAME * fabs(is)))
            return false;
    }
    return true;
}

static void swap(struct param_form *f)
{
    const struct param_step *first = f->steps[0];

    f->steps[0] = f->steps[1];
    f->steps[1] = first;
}

/* One order of the two next to the parameter has to be the only one. */
static bool undo_either(struct param_form *f, const void *x, int64_t n, float *out)
{
    const bool one = undo(f, x, n, out);

    swap(f);
    if (undo(f, x, n, out))
        return !one;
    swap(f);
    return one && undo(f, x, n, out);
}

bool param_form_undo(struct param_form *f, const void *x, int rank, const int64_t *dims, float *out)
{
    int64_t n = 1;
    bool has_softmax = false;

    for (int i = 0; i < rank; i++)
        n *= dims[i];
    for (int k = 0; k < f->n_steps; k++)
        has_softmax |= !f->steps[k]->of;
    if (has_softmax) {
        f->axis =
            f->n_steps == 1 ? axis_of_sums(x, f->steps[0]->back == form_same, rank, dims) : -1;
        return f->axis >= 0 && !f->is_bounded && undo(f, x, n, out);
    }
    if (f->is_bounded && was_held(x, n))
        return false;
    return f->n_free < 2 ? undo(f, x, n, out) : f->n_free == 2 && undo_either(f, x, n, out);
}
