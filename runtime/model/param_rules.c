/* param_rules.c - see param_rules.h. */
#include "runtime/model/param_rules.h"

#include "common/mem.h"
#include "runtime/model/param_kinds.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

static bool begins_with(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* ---------------------------------------------------------------- names */

/* Operations of PyTorch. Exporters call by them what they compute of constants beforehand: tables
 * of positions, norms that are held fixed, and also parameters in another form. */
static const char *const OPERATIONS[] = {
    "abs",   "add",    "amax",    "amin",       "bmm",  "clamp",  "clamp_max",  "clamp_min",
    "cos",   "div",    "einsum",  "erf",        "exp",  "gelu",   "layer_norm", "linear",
    "log",   "matmul", "max",     "mean",       "min",  "mm",     "mul",        "neg",
    "outer", "pad",    "pow",     "reciprocal", "relu", "rsqrt",  "rsub",       "sigmoid",
    "silu",  "sin",    "softmax", "softplus",   "sqrt", "square", "sub",        "sum",
    "tanh",  "tril",   "triu",    "where"};

/* The same, but the numbers stay: the token of a class that is expanded to a batch of one, the rows
 * of a table for positions that are known. */
static const char *const MOVES[] = {
    "_to_copy",  "cat",       "chunk",  "clone",   "contiguous", "embedding", "expand",
    "expand_as", "flatten",   "flip",   "gather",  "getitem",    "index",     "index_select",
    "narrow",    "permute",   "repeat", "reshape", "roll",       "select",    "slice",
    "split",     "squeeze",   "stack",  "t",       "tile",       "to",        "transpose",
    "unflatten", "unsqueeze", "view"};

/* Those that make numbers of nothing, which no parameter was before. */
static const char *const MAKERS[] = {"arange",   "cumsum",   "eye",       "full",      "full_like",
                                     "linspace", "meshgrid", "ones",      "ones_like", "one_hot",
                                     "tmp",      "zeros",    "zeros_like"};

bool param_is_called(const char *name, const char *operation)
{
    size_t n = strcspn(name, "@"), digits = n;

    while (digits > 0 && isdigit((unsigned char)name[digits - 1]))
        digits--;
    if (digits < n && digits > 0 && name[digits - 1] == '_')
        n = digits - 1;
    return strlen(operation) == n && strncmp(operation, name, n) == 0;
}

static bool is_one_of_names(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (param_is_called(name, list[i]))
            return true;
    return false;
}

bool param_is_moved(const char *name)
{
    return is_one_of_names(name, MOVES, SH_ARRAY_LEN(MOVES));
}

bool param_is_maker(const char *name)
{
    return is_one_of_names(name, MAKERS, SH_ARRAY_LEN(MAKERS));
}

/* What exporters of PyTorch and shunt-zoo call numbers and what they compute themselves. */
bool param_is_made_up(const char *name)
{
    static const char *const BEGIN[] = {"val_",    "_val",     "scalar_tensor",
                                        "lifted_", "c_lifted", "_tensor_constant",
                                        "const_",  "_const"};
    size_t n = strcspn(name, "@");

    if (param_is_moved(name) || is_one_of_names(name, OPERATIONS, SH_ARRAY_LEN(OPERATIONS)) ||
        is_one_of_names(name, MAKERS, SH_ARRAY_LEN(MAKERS)) || memchr(name, '/', n) ||
        memchr(name, ':', n) || strstr(name, "onstant"))
        return true;
    for (size_t i = 0; i < SH_ARRAY_LEN(BEGIN); i++)
        if (begins_with(name, BEGIN[i]))
            return true;
    while (n > 0 && isdigit((unsigned char)name[n - 1]))
        n--;
    return n == 0 ||
           (n == strlen("const") && begins_with(name, "const")); /* only digits behind it */
}

bool param_is_word(const char *name)
{
    const char *p = name;

    while (isalnum((unsigned char)*p) || *p == '_' || *p == '.')
        p++;
    return isalpha((unsigned char)name[0]) && !*p && !begins_with(name, "val_");
}

bool param_is_folded(const char *name)
{
    return begins_with(name, "onnx::") || (name[0] && name[strspn(name, "0123456789")] == '\0');
}

const char *param_bare_name(const char *name)
{
    static const char PREFIX[] = "onnx::";

    return begins_with(name, PREFIX) ? name + strlen(PREFIX) : name;
}

bool param_is_lone(const char *name, int rank)
{
    static const char *const SHIFTS[] = {"abs", "add", "neg", "rsub", "sub"};

    return param_is_moved(name) ||
           (rank > 0 && (begins_with(name, "onnx::Add") || begins_with(name, "onnx::Mul") ||
                         begins_with(name, "onnx::Sub") ||
                         is_one_of_names(name, SHIFTS, SH_ARRAY_LEN(SHIFTS))));
}

/* The last part of "layers.0.attn_mask", as modules call their buffers. */
static const char *const BUFFERS[] = {"_u",
                                      "_v",
                                      "adj",
                                      "adjacency",
                                      "anchor",
                                      "anchors",
                                      "betas",
                                      "center",
                                      "centre",
                                      "coords",
                                      "cos",
                                      "dct_mat",
                                      "div_term",
                                      "embed_avg",
                                      "embed_scale",
                                      "eye",
                                      "fb",
                                      "final_logits_bias",
                                      "freq_bands",
                                      "freqs",
                                      "freqs_cis",
                                      "gradient_clipping",
                                      "grid",
                                      "hadamard",
                                      "imagenet_mean",
                                      "imagenet_std",
                                      "input_max",
                                      "input_min",
                                      "laplacian",
                                      "lb",
                                      "levels",
                                      "log_prior",
                                      "mean",
                                      "mel_basis",
                                      "n_points_scale",
                                      "normalizer",
                                      "num_points_scale",
                                      "offsets",
                                      "output_max",
                                      "output_min",
                                      "pe",
                                      "per_layer_input_scale",
                                      "per_layer_projection_scale",
                                      "pos_enc",
                                      "pos_encoding",
                                      "position",
                                      "positions",
                                      "prior",
                                      "priors",
                                      "queue",
                                      "relative_coords_table",
                                      "resample_filter",
                                      "router_input_scale",
                                      "scale_factor",
                                      "sin",
                                      "softcap",
                                      "std",
                                      "std_bias",
                                      "std_scale",
                                      "strides",
                                      "support",
                                      "ub",
                                      "window"};

/* What it begins and ends with. */
static const char *const BEGINNINGS[] = {"ema_", "moving_", "running_"};
static const char *const ENDS[] = {"_cached", "_epsilon", "_mean", "_std", "_var", "_window"};

static bool ends(const char *name, const char *with)
{
    const size_t n = strlen(name), m = strlen(with);

    return n > m && strcmp(name + n - m, with) == 0;
}

/* What stands where something is masked: "mask_token", "masked_spec_embed". */
static bool is_learned_mask(const char *last)
{
    return ends(last, "_token") || ends(last, "_tokens") || ends(last, "_embed") ||
           ends(last, "_embedding");
}

static bool is_word_of_buffers(const char *last)
{
    const bool of_weight = strstr(last, "weight") || strstr(last, "bias");
    const bool of_log = strstr(last, "log_std") || strstr(last, "log_var"); /* of what is drawn */

    for (size_t i = 0; i < SH_ARRAY_LEN(BUFFERS); i++)
        if (strcmp(last, BUFFERS[i]) == 0)
            return true;
    for (size_t i = 0; i < SH_ARRAY_LEN(BEGINNINGS); i++)
        if (begins_with(last, BEGINNINGS[i]))
            return true;
    for (size_t i = 0; i < SH_ARRAY_LEN(ENDS); i++) /* "weight_mean" is of a Bayesian layer */
        if (ends(last, ENDS[i]) && !of_log && (!of_weight || strcmp(ENDS[i], "_epsilon") == 0))
            return true;
    return (strstr(last, "mask") && !is_learned_mask(last)) || strstr(last, "anchor") ||
           strstr(last, "inv_freq") || strstr(last, "cumprod") || begins_with(last, "random_") ||
           begins_with(last, "fixed_") || begins_with(last, "frozen_");
}

/* The part behind the last dot; false: it is longer than any that a rule knows. */
static bool take_last(const char *name, char last[static 64])
{
    size_t n = strcspn(name, "@"), from = n;

    while (from > 0 && name[from - 1] != '.')
        from--;
    if (n - from >= 64)
        return false;
    memcpy(last, name + from, n - from);
    last[n - from] = '\0';
    return true;
}

bool param_is_buffer(const char *name)
{
    char last[64];

    return take_last(name, last) && is_word_of_buffers(last);
}

bool param_is_of_torch(const char *name)
{
    char last[64];

    return take_last(name, last) &&
           (begins_with(last, "weight") || begins_with(last, "bias") ||
            begins_with(last, "original") || begins_with(last, "in_proj_") ||
            begins_with(last, "running_") ||
            (strlen(last) == 13 && strcmp(last + 1, "_proj_weight") == 0));
}

/* More operations, by which nobody calls a constant that is a parameter in another form. */
static const char *const OF_CODE[] = {"alias",
                                      "all",
                                      "any",
                                      "arange_start",
                                      "argsort",
                                      "asin",
                                      "acos",
                                      "atan",
                                      "atanh",
                                      "bitwise_and",
                                      "bitwise_not",
                                      "bitwise_or",
                                      "ceil",
                                      "constant_pad_nd",
                                      "copy",
                                      "cosh",
                                      "cumprod",
                                      "detach",
                                      "diag",
                                      "diagonal",
                                      "empty",
                                      "empty_like",
                                      "eq",
                                      "expm1",
                                      "fill",
                                      "floor",
                                      "floor_divide",
                                      "fmod",
                                      "ge",
                                      "gt",
                                      "isfinite",
                                      "isinf",
                                      "isnan",
                                      "le",
                                      "lift_fresh_copy",
                                      "linalg_vector_norm",
                                      "log10",
                                      "log1p",
                                      "log2",
                                      "logical_and",
                                      "logical_not",
                                      "logical_or",
                                      "logical_xor",
                                      "lt",
                                      "masked_fill",
                                      "maximum",
                                      "minimum",
                                      "ne",
                                      "new_full",
                                      "new_ones",
                                      "new_zeros",
                                      "prod",
                                      "remainder",
                                      "round",
                                      "scatter",
                                      "select_scatter",
                                      "sign",
                                      "sinh",
                                      "slice_scatter",
                                      "sort",
                                      "split_with_sizes",
                                      "tan",
                                      "tril_indices",
                                      "triu_indices",
                                      "true_divide",
                                      "trunc",
                                      "type_as",
                                      "unbind",
                                      "unfold",
                                      "view_as",
                                      "_unsafe_index",
                                      "_unsafe_view"};

#define MAX_NAME 256

/* n bytes of a name; false: it is none that a rule knows. */
static bool copy_module_name(char name[static MAX_NAME], const char *from, size_t n)
{
    if (n == 0 || n >= MAX_NAME)
        return false;
    memcpy(name, from, n);
    name[n] = '\0';
    return true;
}

static bool is_name_of_code(const char *from, size_t n, const struct param_kinds *kinds)
{
    char name[MAX_NAME];

    if (!copy_module_name(name, from, n))
        return false;
    if (param_kinds_known(kinds))
        return param_kind(kinds, name) != GRAPH_SAID_PARAM;
    if (param_is_buffer(name))
        return true;
    return !strchr(name, '.') &&
           (param_is_made_up(name) || begins_with(name, "convert_element_type") ||
            is_one_of_names(name, OF_CODE, SH_ARRAY_LEN(OF_CODE)));
}

const char *param_next_name(const char *list, size_t *n)
{
    const char *from = strchr(list, '\'');

    if (!from || from[1 + (*n = strcspn(from + 1, "'"))] != '\'')
        return NULL;
    return from + 1;
}

bool param_is_cast_weight(const char *name, const char *list)
{
    size_t n = 0;
    const char *first = param_next_name(list, &n);

    return first && !param_next_name(first + n + 1, &n) && strncmp(name, "weight", 6) == 0 &&
           strspn(name + 6, "_0123456789") == strlen(name + 6);
}

bool param_is_of_code(const char *list, const struct param_kinds *kinds)
{
    size_t n = 0;
    const char *name = param_next_name(list, &n);
    bool all = name;

    for (; name && all; name = param_next_name(name + n + 1, &n))
        all = is_name_of_code(name, n, kinds);
    return all;
}

bool param_is_operation(const char *from, size_t n)
{
    char name[MAX_NAME];

    return copy_module_name(name, from, n) &&
           is_one_of_names(name, OPERATIONS, SH_ARRAY_LEN(OPERATIONS));
}

bool param_is_computed(const char *name, const char *list, const struct param_kinds *kinds)
{
    bool any = param_is_operation(name, strlen(name));
    size_t n = 0;

    for (const char *p = param_next_name(list, &n); p && !any; p = param_next_name(p + n + 1, &n))
        any = param_is_operation(p, n);
    return any && !param_is_of_code(list, kinds);
}

/* It was computed, maybe from something that had a name in the module. */
bool param_is_turned(const char *name)
{
    return param_is_folded(name) || param_is_moved(name) ||
           is_one_of_names(name, OPERATIONS, SH_ARRAY_LEN(OPERATIONS));
}

/* ---------------------------------------------------------------- numbers */

#define MIN_TABLE 8
#define SAMPLE 512
#define SAME_LENGTH 1e-4 /* of lines: what rounding leaves of equal ones */

static int by_number(const void *a, const void *b)
{
    float x, y;

    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return x < y ? -1 : x > y;
}

/* Three of four of them are found once, and all are finite. */
static bool differ(const uint8_t *data, int64_t n)
{
    const int64_t m = SH_MIN(n, (int64_t)SAMPLE);
    int64_t distinct = 1;
    float seen[SAMPLE];

    for (int64_t i = 0; i < m; i++) {
        seen[i] = param_number(data, i * (n / m) + i % (n / m));
        if (!isfinite(seen[i]))
            return false;
    }
    qsort(seen, (size_t)m, sizeof(*seen), by_number);
    for (int64_t i = 1; i < m; i++)
        distinct += seen[i] != seen[i - 1];
    return 4 * distinct >= 3 * m;
}

/* Numbers data[from], data[from + step], ... */
struct line {
    int64_t from, n, step;
};

static bool is_monotone(const uint8_t *data, struct line l, double *squares)
{
    bool up = true, down = true;
    float before = param_number(data, l.from);

    *squares = 0;
    for (int64_t k = 0; k < l.n; k++) {
        const float x = param_number(data, l.from + k * l.step);

        up &= x >= before;
        down &= x <= before;
        *squares += (double)x * (double)x;
        before = x;
    }
    return up || down;
}

/* All lines along an axis of n rise or fall, or are of one length. */
static bool has_formula(const uint8_t *data, int64_t outer, int64_t n, int64_t inner)
{
    bool monotone = n >= 3;
    double shortest = HUGE_VAL, longest = 0;

    for (int64_t i = 0; i < outer * inner; i++) {
        const struct line l = {(i / inner) * n * inner + i % inner, n, inner};
        double squares;

        monotone &= is_monotone(data, l, &squares);
        shortest = fmin(shortest, squares);
        longest = fmax(longest, squares);
        if (!monotone && longest - shortest > SAME_LENGTH * longest)
            return false;
    }
    return monotone ||
           (n >= 2 && outer * inner >= 2 && longest - shortest <= SAME_LENGTH * longest);
}

bool param_is_scattered(const void *data, int rank, const int64_t *dims)
{
    int64_t n = 1, inner = 1;
    int wide = 0;

    for (int i = 0; i < rank; i++) {
        if (dims[i] < 1 || __builtin_mul_overflow(n, dims[i], &n))
            return false;
        wide += dims[i] > 1;
    }
    if (!data || wide < 1 || n < MIN_TABLE || !differ(data, n))
        return false;
    for (int i = rank; i-- > 0; inner *= dims[i])
        if (dims[i] > 1 && has_formula(data, n / inner / dims[i], dims[i], inner))
            return false;
    return true;
}

/* ---------------------------------------------------------------- sines */

/* sin^2 + cos^2 of each wave: half the number of columns; a row of zeros is that of a class. */
static bool is_of_one_length(const uint8_t *data, int64_t rows, int64_t columns)
{
    int64_t zeros = 0;

    for (int64_t i = 0; i < rows; i++) {
        const struct line l = {i * columns, columns, 1};
        double squares;

        (void)is_monotone(data, l, &squares);
        zeros += squares == 0;
        if (squares != 0 && fabs(squares - 0.5 * (double)columns) > SAME_LENGTH * (double)columns)
            return false;
    }
    return zeros <= 1;
}

#define MIN_WAVE 5      /* numbers: fewer always lie on one */
#define MIN_ALONE 8     /* of a line that is all there is */
#define MIN_PAIRS 8     /* of a sine and a cosine */
#define MIN_LINES 4     /* of a table */
#define WAVE_ERROR 2e-3 /* of its height */
#define STEP_ERROR 1e-6 /* of the height of a line */

static double height_of(const uint8_t *data, struct line l, double *lo)
{
    double hi = -HUGE_VAL;

    *lo = HUGE_VAL;
    for (int64_t k = 0; k < l.n; k++) {
        const double x = (double)param_number(data, l.from + k * l.step);

        *lo = fmin(*lo, x);
        hi = fmax(hi, x);
    }
    return hi - *lo;
}

/* x[k + 1] + x[k - 1] = a x[k] + b, as of any sine of k, however it is scaled and moved, and of
 * lines, squares and powers. *height: 0 of numbers that are all the same. */
static bool is_wave(const uint8_t *data, struct line l, double *height)
{
    const double n = (double)(l.n - 2);
    double sx = 0, sy = 0, sxx = 0, sxy = 0, lo, a, worst = 0;

    *height = height_of(data, l, &lo);
    for (int64_t pass = 0; pass < 2; pass++) {
        const double d = n * sxx - sx * sx;

        a = d > 0 ? (n * sxy - sx * sy) / d : 0;
        for (int64_t k = 1; k + 1 < l.n; k++) {
            const double x = (double)param_number(data, l.from + k * l.step) - lo;
            const double y = (double)param_number(data, l.from + (k + 1) * l.step) +
                             (double)param_number(data, l.from + (k - 1) * l.step) - 2 * lo;

            worst = fmax(worst, pass ? fabs(y - a * x - (sy - a * sx) / n) : 0);
            if (pass)
                continue;
            sx += x;
            sy += y;
            sxx += x * x;
            sxy += x * y;
        }
    }
    return worst <= WAVE_ERROR * *height;
}

/* All columns are waves or the same number all the way, and at most half of them the latter; or all
 * rows are. The same but for rounding: sin(pi k) of a Fourier matrix. */
static bool are_waves(const uint8_t *data, int64_t rows, int64_t columns, bool across)
{
    const int64_t n = across ? rows : columns; /* lines */
    double lo, whole;
    int64_t flat = 0;

    if (n < MIN_LINES || (across ? columns : rows) < MIN_WAVE)
        return false;
    whole = height_of(data, (struct line){0, rows * columns, 1}, &lo);
    for (int64_t i = 0; i < n; i++) {
        const struct line l =
            across ? (struct line){i * columns, columns, 1} : (struct line){i, rows, columns};
        double height;
        const bool is = is_wave(data, l, &height), is_flat = height <= WAVE_ERROR * whole;

        if (!is && !is_flat)
            return false;
        flat += is_flat;
    }
    return 2 * flat <= n;
}

/* Pair k of a table: neighbours, or a column of the first half and its like in the second. */
static void take_pair(const uint8_t *data, int64_t columns, bool by_halves, int64_t k, double xy[2])
{
    const int64_t half = columns / 2, row = k / half * columns, i = k % half;

    xy[0] = (double)param_number(data, row + (by_halves ? i : 2 * i));
    xy[1] = (double)param_number(data, row + (by_halves ? i + half : 2 * i + 1));
}

/* A sine and a cosine of one angle lie on a circle, the same for all, however the table is scaled
 * and moved: x^2 + y^2 = a (x + y) + b. Numbers of only two kinds do so too, and are no waves. */
static bool are_circles(const uint8_t *data, int64_t rows, int64_t columns, bool by_halves)
{
    const int64_t pairs = rows * (columns / 2);
    double n = (double)pairs, ss = 0, sq = 0, s2 = 0, s_q = 0, worst = 0, a, b, d, lo, height;
    int64_t between = 0;

    if (columns % 2 != 0 || pairs < MIN_PAIRS)
        return false;
    height = height_of(data, (struct line){0, rows * columns, 1}, &lo);
    for (int64_t k = 0; k < pairs; k++) {
        double p[2];

        take_pair(data, columns, by_halves, k, p);
        ss += p[0] + p[1];
        sq += p[0] * p[0] + p[1] * p[1];
        s2 += (p[0] + p[1]) * (p[0] + p[1]);
        s_q += (p[0] + p[1]) * (p[0] * p[0] + p[1] * p[1]);
        for (int j = 0; j < 2; j++)
            between += p[j] > lo + WAVE_ERROR * height && p[j] < lo + (1 - WAVE_ERROR) * height;
    }
    d = n * s2 - ss * ss;
    a = d > 0 ? (n * s_q - ss * sq) / d : 0;
    b = (sq - a * ss) / n;
    for (int64_t k = 0; k < pairs; k++) {
        double p[2];

        take_pair(data, columns, by_halves, k, p);
        worst = fmax(worst, fabs(p[0] * p[0] + p[1] * p[1] - a * (p[0] + p[1]) - b));
    }
    return 2 * between >= pairs && worst <= SAME_LENGTH * height * height;
}

bool param_is_line(const void *data, int64_t n)
{
    const double lo = (double)param_number(data, 0);
    const double step = n > 1 ? ((double)param_number(data, n - 1) - lo) / (double)(n - 1) : 0;
    bool even = n >= 4 && step != 0;

    for (int64_t k = 1; k + 1 < n && even; k++)
        even = fabs((double)param_number(data, k) - lo - (double)k * step) <=
               STEP_ERROR * fabs(step) * (double)(n - 1);
    return even;
}

/* ---------------------------------------------------------------- neighbours */

/* How the numbers of an n x n matrix lie. */
struct square {
    bool symmetric, rows, columns; /* rows: those that are not all 0 have a sum of 1 */
    int64_t zeros, beside;         /* beside: not 0 and off the diagonal */
};

/* false: some number is below 0, or is none. */
static bool look_at_square(const uint8_t *data, int64_t n, struct square *s)
{
    for (int64_t i = 0; i < n; i++) {
        double row = 0, column = 0;

        for (int64_t k = 0; k < n; k++) {
            const float x = param_number(data, i * n + k), turned = param_number(data, k * n + i);

            if (!(x >= 0) || !isfinite(x))
                return false;
            s->zeros += x == 0;
            s->beside += x != 0 && i != k;
            s->symmetric &= fabsf(x - turned) <= 1e-6f * fabsf(x);
            row += (double)x;
            column += (double)turned;
        }
        s->rows &= row == 0 || fabs(row - 1) <= SAME_LENGTH;
        s->columns &= column == 0 || fabs(column - 1) <= SAME_LENGTH;
    }
    return true;
}

/* Graphs of which the nodes are told who their neighbours are, with weights or without: there are
 * pairs that are none, and all are mutual, or those of a node have a sum of 1. */
static bool are_neighbours(const uint8_t *data, int64_t rows, int64_t n)
{
    int64_t zeros = 0, beside = 0;

    if (n < 3 || rows % n != 0)
        return false;
    for (int64_t at = 0; at < rows; at += n) {
        struct square s = {.symmetric = true, .rows = true, .columns = true};

        if (!look_at_square(data + at * n * (int64_t)sizeof(float), n, &s) ||
            !(s.symmetric || s.rows || s.columns))
            return false;
        zeros += s.zeros;
        beside += s.beside;
    }
    return zeros > 0 && beside > 0;
}

/* No number is below 0, half of them or more are 0, and the others of each line lie beside each
 * other, several of some line: none of an identity. */
static bool are_bands(const uint8_t *data, int64_t rows, int64_t columns, bool across)
{
    const int64_t n = across ? rows : columns, length = across ? columns : rows;
    int64_t others = 0, wide = 0;

    for (int64_t i = 0; i < n; i++) {
        int64_t first = -1, last = -1, count = 0;

        for (int64_t k = 0; k < length; k++) {
            const float x = param_number(data, across ? i * columns + k : k * columns + i);

            if (!(x >= 0))
                return false;
            if (x == 0)
                continue;
            first = first < 0 ? k : first;
            last = k;
            count++;
        }
        if (count > 0 && last - first + 1 != count)
            return false;
        others += count;
        wide += count > 1;
    }
    return 2 * others <= rows * columns && wide > 0;
}

/* A bank of filters over the bins of a spectrum: mel, bark, thirds of an octave. */
static bool is_bank(const uint8_t *data, int64_t rows, int64_t columns)
{
    return rows >= MIN_LINES && columns >= MIN_LINES && rows != columns &&
           are_bands(data, rows, columns, rows < columns);
}

bool param_is_formula(const void *data, int rank, const int64_t *dims)
{
    const int64_t columns = rank > 0 ? dims[rank - 1] : 0;
    const struct line all = {0, columns, 1};
    double height;
    int64_t rows = 1;

    for (int i = 0; i + 1 < rank; i++)
        if (dims[i] < 1 || __builtin_mul_overflow(rows, dims[i], &rows))
            return false;
    if (data && rows == 1 && columns >= 1)
        return param_is_line(data, columns) ||
               (columns >= MIN_ALONE && is_wave(data, all, &height) && height > 0);
    return data && rows >= 2 && columns >= 2 &&
           (is_of_one_length(data, rows, columns) || are_waves(data, rows, columns, false) ||
            are_waves(data, rows, columns, true) || are_circles(data, rows, columns, false) ||
            are_circles(data, rows, columns, true) || (rank == 2 && is_bank(data, rows, columns)) ||
            (rank >= 2 && dims[rank - 2] == columns && are_neighbours(data, rows, columns)));
}
