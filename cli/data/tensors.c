/* tensors.c - see tensors.h. */
#include "cli/data/tensors.h"

#include "cli/cli.h"
#include "cli/data/number.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_HEADER (1u << 20)

void tensors_fini(struct tensors *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->list[i].own);
    sh_st_close(t->file);
    *t = (struct tensors){0};
}

static int row_size(struct tensor *t, struct sh_err *err)
{
    size_t n = sh_dtype_bytes(t->dtype);
    int rc = SH_OK;

    for (size_t i = 1; !rc && i < t->rank; i++)
        rc = t->dims[i] < 1 ? SH_FAIL(err, SH_E_INVALID, "tensor \"%s\" has an empty axis", t->name)
                            : sh_mul_size(n, (size_t)t->dims[i], &n, err);
    t->row_bytes = n;
    return rc;
}

/* ---------------------------------------------------------------- inputs */

static int odd_shape(const struct tensor *x, const json_t *shape, struct sh_err *err)
{
    char got[128] = "", want[128] = "";
    size_t n = 0;

    for (size_t i = 0; i < x->rank && n < sizeof(got); i++)
        n += (size_t)snprintf(got + n, sizeof(got) - n, "%s%" PRId64, i ? ", " : "", x->dims[i]);
    n = 0;
    for (size_t i = 0; i < json_array_size(shape) && n < sizeof(want); i++)
        n += (size_t)snprintf(want + n, sizeof(want) - n, "%s%" JSON_INTEGER_FORMAT, i ? ", " : "",
                              json_integer_value(json_array_get(shape, i)));
    return SH_FAIL(err, SH_E_INVALID, "\"%.100s\" has the shape [%s], the model takes [%s]",
                   x->name, got, want);
}

/* One row may come without the axis of rows. */
static int fit_shape(struct tensor *x, const json_t *shape, struct sh_err *err)
{
    size_t rank = json_array_size(shape);

    if (rank == x->rank + 1 && rank <= SH_MAX_RANK) {
        memmove(&x->dims[1], &x->dims[0], x->rank * sizeof(x->dims[0]));
        x->dims[0] = 1;
        x->rank++;
    }
    if (rank > 0 && rank != x->rank)
        return odd_shape(x, shape, err);
    for (size_t i = 1; i < rank; i++) {
        json_int_t n = json_integer_value(json_array_get(shape, i));

        if (n >= 0 && n != x->dims[i])
            return odd_shape(x, shape, err);
    }
    return SH_OK;
}

int tensors_add(struct tensors *t, const json_t *w, const struct tensor *x, struct sh_err *err)
{
    const char *type = sh_json_text(w, "datatype");
    struct tensor *out = &t->list[t->n];

    if (t->n >= TENSORS_MAX) {
        free(x->own);
        return SH_FAIL(err, SH_E_TOOBIG, "the model has more than %d inputs", TENSORS_MAX);
    }
    *out = *x;
    t->n++; /* tensors_fini() frees it from here on */
    sh_strlcpy(out->name, sh_json_text(w, "name"), sizeof(out->name));
    if (type[0] && strcmp(type, sh_dtype_v2(out->dtype)) != 0)
        return SH_FAIL(err, SH_E_INVALID, "\"%.100s\" is %s, the model takes %.20s%s", out->name,
                       sh_dtype_v2(out->dtype), type,
                       out->dtype == SH_F64 && strcmp(type, "FP32") == 0
                           ? "; NumPy makes FP64 unless it is told otherwise: save "
                             "array.astype(\"float32\")"
                           : "");
    if (fit_shape(out, json_object_get(w, "shape"), err))
        return SH_E_INVALID;
    if (out->rank < 1 || out->dims[0] < 1)
        return SH_FAIL(err, SH_E_INVALID, "\"%.100s\" has no rows", out->name);
    if (t->n > 1 && out->dims[0] != t->rows)
        return SH_FAIL(err, SH_E_INVALID, "the inputs have different numbers of rows");
    t->rows = out->dims[0];
    return row_size(out, err);
}

static int add_from_file(struct tensors *t, const json_t *w, struct sh_err *err)
{
    const struct sh_st_tensor *s = sh_st_find(t->file, sh_json_text(w, "name"));
    struct tensor x;

    if (!s)
        return SH_FAIL(err, SH_E_INVALID,
                       "the file has no tensor \"%.100s\", an input of the model",
                       sh_json_text(w, "name"));
    x = (struct tensor){.dtype = s->dtype, .rank = s->rank, .data = s->data};
    memcpy(x.dims, s->dims, sizeof(x.dims));
    return tensors_add(t, w, &x, err);
}

int tensors_from_file(const char *path, const json_t *wanted, struct tensors *out,
                      struct sh_err *err)
{
    json_t *w;
    size_t i;
    int rc;

    *out = (struct tensors){0};
    rc = sh_st_open(path, &out->file, err);
    json_array_foreach((json_t *)wanted, i, w)
    {
        if (!rc)
            rc = add_from_file(out, w, err);
    }
    if (rc)
        tensors_fini(out);
    return rc;
}

static uint64_t next_splitmix(uint64_t *x) /* splitmix64 */
{
    uint64_t z = (*x += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Floats in -1 to 1; whole numbers in 0 to 99, which are tokens of any vocabulary. */
static void fill_random(struct tensor *t, size_t n, uint64_t *x)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t r = next_splitmix(x);

        if (number_is_float(t->dtype))
            number_put(t->dtype, t->own, i, (double)(r >> 11) / 0x1p52 - 1);
        else
            number_put_int(t->dtype, t->own, i, (int64_t)(t->dtype == SH_BOOL ? r & 1 : r % 100));
    }
}

/* Axes of which the model's file leaves the size open take the sizes in turn. */
static int fill_sizes(struct tensor *t, const int64_t *sizes, size_t n, struct sh_err *err)
{
    size_t k = 0;

    for (size_t i = 1; i < t->rank; i++) {
        if (t->dims[i] >= 0)
            continue;
        if (n == 0)
            return SH_FAIL(err, SH_E_INVALID,
                           "input \"%s\" may have any size along axis %zu: say which with --sizes, "
                           "such as --sizes 128, or 224,160 for two such axes",
                           t->name, i);
        t->dims[i] = sizes[k++ % n];
    }
    return SH_OK;
}

static int add_random(struct tensors *t, const json_t *w, const int64_t *sizes, size_t n_sizes,
                      uint64_t *x, struct sh_err *err)
{
    const json_t *shape = json_object_get(w, "shape");
    struct tensor *out = &t->list[t->n];
    size_t bytes = 0;
    int rc;

    *out = (struct tensor){.dtype = sh_dtype_from_v2(sh_json_text(w, "datatype")),
                           .rank = json_array_size(shape)};
    sh_strlcpy(out->name, sh_json_text(w, "name"), sizeof(out->name));
    if (out->dtype == SH_N_DTYPES || out->rank < 1 || out->rank > SH_MAX_RANK)
        return SH_FAIL(err, SH_E_PROTO, "input \"%s\" of the model has an odd type", out->name);
    out->dims[0] = t->rows;
    for (size_t i = 1; i < out->rank; i++)
        out->dims[i] = json_integer_value(json_array_get(shape, i));
    rc = fill_sizes(out, sizes, n_sizes, err);
    if (!rc)
        rc = row_size(out, err);
    if (!rc)
        rc = sh_mul_size(out->row_bytes, (size_t)t->rows, &bytes, err);
    if (!rc) {
        out->own = malloc(bytes);
        if (!out->own)
            rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate inputs");
    }
    if (!rc)
        fill_random(out, bytes / sh_dtype_bytes(out->dtype), x);
    out->data = out->own;
    t->n++;
    return rc;
}

static bool is_open(const json_t *wanted)
{
    bool open = false;

    for (size_t i = 0; i < json_array_size(wanted); i++) {
        const json_t *shape = json_object_get(json_array_get(wanted, i), "shape");

        for (size_t axis = 1; axis < json_array_size(shape); axis++)
            open |= json_integer_value(json_array_get(shape, axis)) < 0;
    }
    return open;
}

int tensors_random(const json_t *wanted, int64_t rows, const int64_t *sizes, size_t n_sizes,
                   uint64_t seed, struct tensors *out, struct sh_err *err)
{
    json_t *w;
    size_t i;
    int rc = SH_OK;

    *out = (struct tensors){.rows = rows};
    json_array_foreach((json_t *)wanted, i, w)
    {
        if (!rc && i >= TENSORS_MAX)
            rc = SH_FAIL(err, SH_E_TOOBIG, "the model has more than %d inputs", TENSORS_MAX);
        if (!rc)
            rc = add_random(out, w, sizes, n_sizes, &seed, err);
    }
    if (!rc && n_sizes && !is_open(wanted))
        rc = SH_FAIL(err, SH_E_INVALID, "--sizes: the model's file leaves no size open");
    if (rc)
        tensors_fini(out);
    return rc;
}

/* ---------------------------------------------------------------- requests and answers */

static int add_json_input(json_t *inputs, const struct tensor *t, int64_t rows, struct sh_err *err)
{
    json_t *shape = json_pack("[I]", (json_int_t)rows);

    for (size_t i = 1; i < t->rank; i++)
        json_array_append_new(shape, json_integer(t->dims[i]));
    if (json_array_append_new(inputs, json_pack("{s:s, s:s, s:o, s:{s:I}}", "name", t->name,
                                                "datatype", sh_dtype_v2(t->dtype), "shape", shape,
                                                "parameters", "binary_data_size",
                                                (json_int_t)(t->row_bytes * (size_t)rows))))
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a request");
    return SH_OK;
}

int tensors_encode(const struct tensors *t, int64_t first, int64_t rows, struct sh_buf *out,
                   size_t *json_len, struct sh_err *err)
{
    json_t *inputs = json_array(), *head = NULL;
    char *text = NULL;
    int rc = SH_OK;

    sh_buf_reset(out);
    for (size_t i = 0; !rc && i < t->n; i++)
        rc = add_json_input(inputs, &t->list[i], rows, err);
    head = json_pack("{s:O, s:{s:b}}", "inputs", inputs, "parameters", "binary_data_output", 1);
    if (!rc)
        rc = head ? sh_json_dump(head, &text, err)
                  : SH_FAIL(err, SH_E_NOMEM, "could not allocate a request");
    if (!rc)
        rc = sh_buf_puts(out, text, err);
    *json_len = out->len;
    for (size_t i = 0; !rc && i < t->n; i++) {
        const struct tensor *in = &t->list[i];

        rc = sh_buf_append(out, in->data + (size_t)first * in->row_bytes,
                           (size_t)rows * in->row_bytes, err);
    }
    free(text);
    json_decref(head);
    json_decref(inputs);
    return rc;
}

static int find_tensor_output(struct tensors *t, const json_t *o, struct tensor **out,
                              struct sh_err *err)
{
    const json_t *shape = json_object_get(o, "shape");
    const char *name = sh_json_text(o, "name");
    struct tensor *x;

    for (size_t i = 0; i < t->n; i++) {
        *out = &t->list[i];
        if (strcmp(t->list[i].name, name) == 0)
            return SH_OK;
    }
    if (t->n >= TENSORS_MAX || json_array_size(shape) < 1 || json_array_size(shape) > SH_MAX_RANK)
        return SH_FAIL(err, SH_E_PROTO, "the answer has an odd output \"%.60s\"", name);
    x = &t->list[t->n++];
    *x = (struct tensor){.dtype = sh_dtype_from_v2(sh_json_text(o, "datatype")),
                         .rank = json_array_size(shape)};
    sh_strlcpy(x->name, name, sizeof(x->name));
    for (size_t i = 1; i < x->rank; i++)
        x->dims[i] = json_integer_value(json_array_get(shape, i));
    *out = x;
    if (x->dtype == SH_N_DTYPES)
        return SH_FAIL(err, SH_E_PROTO, "output \"%s\" has a type that is not known", x->name);
    return row_size(x, err);
}

static int append_tensor_number(struct tensors *t, const json_t *o, const char *data, size_t n,
                                size_t max_bytes, struct sh_err *err)
{
    json_int_t rows = json_integer_value(json_array_get(json_object_get(o, "shape"), 0));
    struct tensor *x = NULL;
    size_t have;
    char *more;
    int rc = find_tensor_output(t, o, &x, err);

    if (rc)
        return rc;
    if (rows < 0 || n != (size_t)rows * x->row_bytes)
        return SH_FAIL(err, SH_E_PROTO, "output \"%s\" has %zu bytes, not those of its shape",
                       x->name, n);
    if (t->skip > 0 && t->skip < rows) {
        data += (size_t)t->skip * x->row_bytes;
        n -= (size_t)t->skip * x->row_bytes;
        rows -= t->skip;
    }
    have = (size_t)x->dims[0] * x->row_bytes;
    if (n == 0 || have + n > max_bytes)
        return n == 0
                   ? SH_OK
                   : SH_FAIL(err, SH_E_TOOBIG, "the outputs have more than %zu bytes", max_bytes);
    more = realloc(x->own, have + n);
    if (!more)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate outputs");
    memcpy(more + have, data, n);
    x->own = more;
    x->data = more;
    x->dims[0] += rows;
    t->rows = x->dims[0];
    return SH_OK;
}

int tensors_append(struct tensors *t, const char *body, size_t len, int64_t json_len,
                   size_t max_bytes, struct sh_err *err)
{
    size_t at = json_len >= 0 ? (size_t)json_len : len, i;
    json_t *head = NULL, *o;
    int rc;

    if (at > len)
        return SH_FAIL(err, SH_E_PROTO, "the answer is shorter than its header says");
    rc = sh_json_parse(body, at, MAX_HEADER, &head, err);
    json_array_foreach(json_object_get(head, "outputs"), i, o)
    {
        json_t *p = json_object_get(json_object_get(o, "parameters"), "binary_data_size");
        json_int_t n = json_integer_value(p);

        if (!rc && (!p || n < 0 || (size_t)n > len - at))
            rc = SH_FAIL(err, SH_E_PROTO, "the answer has an output without its bytes");
        if (!rc)
            rc = append_tensor_number(t, o, body + at, (size_t)n, max_bytes, err);
        if (!rc)
            at += (size_t)n;
    }
    json_decref(head);
    return rc;
}

int tensors_write(const struct tensors *t, const char *path, struct sh_err *err)
{
    struct sh_st_tensor list[TENSORS_MAX];

    for (size_t i = 0; i < t->n; i++) {
        const struct tensor *x = &t->list[i];

        list[i] = (struct sh_st_tensor){.name = x->name,
                                        .dtype = x->dtype,
                                        .rank = x->rank,
                                        .data = x->data,
                                        .bytes = x->row_bytes * (size_t)x->dims[0]};
        memcpy(list[i].dims, x->dims, sizeof(list[i].dims));
    }
    return sh_st_write(path, list, t->n, NULL, err);
}

size_t tensor_top(const struct tensor *t, int64_t row, size_t k, struct tensor_score *out)
{
    size_t n = t->row_bytes / sh_dtype_bytes(t->dtype), kept = 0;
    const char *data = t->data + (size_t)row * t->row_bytes;

    for (size_t i = 0; number_is_float(t->dtype) && i < n; i++) {
        double v = number_get(t->dtype, data, i);
        size_t at = kept;

        while (at > 0 && v > out[at - 1].score)
            at--;
        if (at == k)
            continue;
        kept = SH_MIN(kept + 1, k);
        memmove(&out[at + 1], &out[at], (kept - at - 1) * sizeof(*out));
        out[at] = (struct tensor_score){(int64_t)i, v};
    }
    return kept;
}

int64_t tensor_argmax(const struct tensor *t, int64_t row)
{
    struct tensor_score best;

    return tensor_top(t, row, 1, &best) ? best.index : -1;
}
