/* dim.c - see dim.h. */
#include "common/dim.h"

#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>

struct sh_dim sh_dim_fixed(int64_t size)
{
    return (struct sh_dim){.add = size};
}

struct sh_dim sh_dim_is(int of)
{
    return (struct sh_dim){.mul = 1, .n = 1, .f = {{.of = of, .div = 1}}};
}

bool sh_dim_is_fixed(const struct sh_dim *d)
{
    return (d->n == 0 || d->mul == 0) && !d->is_most;
}

int sh_dims_counted(const struct sh_dim *dims, size_t rank)
{
    for (size_t i = 0; i < rank; i++)
        if (dims[i].is_most)
            return (int)i;
    return -1;
}

int sh_dims_cut(void *data, int64_t *dims, size_t rank, size_t unit, size_t axis, int64_t n,
                struct sh_err *err)
{
    size_t rows = 1, row = unit;

    if (n < 0 || n > dims[axis])
        return SH_FAIL(err, SH_E_BUG, "%" PRId64 " elements of an axis of %" PRId64 " are there", n,
                       dims[axis]);
    for (size_t i = 0; i < axis; i++)
        rows *= (size_t)dims[i];
    for (size_t i = axis + 1; i < rank; i++)
        row *= (size_t)dims[i];
    for (size_t i = 1; i < rows; i++)
        memmove((char *)data + i * row * (size_t)n, (char *)data + i * row * (size_t)dims[axis],
                row * (size_t)n);
    dims[axis] = n;
    return SH_OK;
}

bool sh_dim_is_of(const struct sh_dim *d, int of)
{
    return !d->is_most && d->n == 1 && d->add == 0 && d->mul == 1 && d->f[0].of == of &&
           d->f[0].plus == 0 && d->f[0].div == 1;
}

/* Rounded down, also below 0. */
static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

int sh_dim_size(const struct sh_dim *d, int64_t batch, const struct sh_sizes *s, int64_t *out,
                struct sh_err *err)
{
    int64_t x = d->mul;

    for (uint32_t i = 0; i < d->n; i++) {
        const struct sh_dim_of *f = &d->f[i];
        int64_t v = f->of == SH_DIM_BATCH ? batch : (int64_t)s->v[f->of];

        if (__builtin_mul_overflow(x, floor_div(v + f->plus, f->div), &x) || x > SH_MAX_SIZE ||
            x < -SH_MAX_SIZE)
            return SH_FAIL(err, SH_E_TOOBIG, "an axis would have more than %" PRId64 " elements",
                           SH_MAX_SIZE);
    }
    *out = d->add + (d->n ? x : 0);
    if (*out < 0)
        return SH_FAIL(err, SH_E_INVALID, "an axis would have %" PRId64 " elements", *out);
    return SH_OK;
}

/* ------------------------------------------------------------------ symbols */

int sh_symbol_find(const struct sh_symbols *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->name[i], name) == 0)
            return (int)i;
    return -1;
}

int sh_symbol_add(struct sh_symbols *s, const char *name, int *out, struct sh_err *err)
{
    *out = sh_symbol_find(s, name);
    if (*out >= 0)
        return SH_OK;
    if (s->n == SH_MAX_SYMBOLS)
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "the inputs have more than %u sizes that are not fixed, beside the batch",
                       SH_MAX_SYMBOLS);
    if (!name[0] || !sh_strlcpy(s->name[s->n], name, SH_SYMBOL_BYTES))
        return SH_FAIL(err, SH_E_INVALID, "the name of a size has no or more than %u bytes",
                       SH_SYMBOL_BYTES - 1);
    *out = (int)s->n++;
    return SH_OK;
}

int sh_symbols_read(const json_t *inputs, struct sh_symbols *out, struct sh_err *err)
{
    int rc = SH_OK;

    *out = (struct sh_symbols){0};
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        const json_t *dims = json_object_get(json_array_get(inputs, i), "dims");

        for (size_t k = 0; !rc && k < json_array_size(dims); k++) {
            const char *name = json_string_value(json_array_get(dims, k));
            int at;

            if (name)
                rc = sh_symbol_add(out, name, &at, err);
        }
    }
    return rc;
}

int sh_sizes_take(const struct sh_dim *dims, size_t rank, const struct sh_st_tensor *t,
                  struct sh_sizes *z, struct sh_err *err)
{
    if (t->rank != rank)
        return SH_FAIL(err, SH_E_INVALID, "tensor \"%s\" has %zu axes, the model wants %zu",
                       t->name, t->rank, rank);
    for (size_t i = 0; i < rank; i++) {
        uint32_t *size;

        if (dims[i].n == 0 || dims[i].f[0].of == SH_DIM_BATCH)
            continue;
        size = &z->v[dims[i].f[0].of];
        if (t->dims[i] < 1 || t->dims[i] > SH_MAX_SIZE || (*size && t->dims[i] != (int64_t)*size))
            return SH_FAIL(err, SH_E_INVALID,
                           "axis %zu of tensor \"%s\" has size %" PRId64 ", another axis that has "
                           "to be as large %" PRIu32,
                           i, t->name, t->dims[i], *size);
        *size = (uint32_t)t->dims[i];
    }
    return SH_OK;
}

const char *sh_sizes_text(const struct sh_symbols *s, const struct sh_sizes *z, char *out,
                          size_t size)
{
    size_t len = 0;

    out[0] = '\0';
    for (size_t i = 0; i < s->n && len < size; i++)
        len += (size_t)snprintf(out + len, size - len, "%s%s=%" PRIu32, i ? ", " : "", s->name[i],
                                z->v[i]);
    return out;
}

/* ------------------------------------------------------------------ as JSON */

static json_t *of_json(int of, const struct sh_symbols *s)
{
    return of == SH_DIM_BATCH ? json_integer(SH_DIM_BATCH) : json_string(s->name[of]);
}

static json_t *dim_json(const struct sh_dim *d, const struct sh_symbols *s)
{
    struct sh_dim most = *d;
    json_t *of;

    most.is_most = false;
    if (d->is_most)
        return json_pack("{s:o}", "most", dim_json(&most, s));
    if (sh_dim_is_fixed(d))
        return json_integer(d->add);
    if (sh_dim_is_of(d, d->f[0].of))
        return of_json(d->f[0].of, s);
    of = json_array();
    for (uint32_t i = 0; i < d->n; i++)
        json_array_append_new(of, json_pack("[o,I,I]", of_json(d->f[i].of, s),
                                            (json_int_t)d->f[i].plus, (json_int_t)d->f[i].div));
    return json_pack("{s:I,s:I,s:o}", "add", (json_int_t)d->add, "mul", (json_int_t)d->mul, "of",
                     of);
}

json_t *sh_dims_json(const struct sh_dim *dims, size_t rank, const struct sh_symbols *s)
{
    json_t *a = json_array();

    for (size_t i = 0; i < rank; i++)
        json_array_append_new(a, dim_json(&dims[i], s));
    return a;
}

bool sh_dims_are_plain(const struct sh_dim *dims, size_t rank)
{
    for (size_t i = 0; i < rank; i++)
        if (!sh_dim_is_fixed(&dims[i]) && (i > 0 || !sh_dim_is_of(&dims[i], SH_DIM_BATCH)))
            return false;
    return true;
}

static bool read_of(const json_t *j, const struct sh_symbols *s, int32_t *out)
{
    const char *name = json_string_value(j);

    *out = name ? sh_symbol_find(s, name) : SH_DIM_BATCH;
    return name ? *out >= 0 : json_is_integer(j) && json_integer_value(j) == SH_DIM_BATCH;
}

static bool read_derived(const json_t *j, const struct sh_symbols *s, struct sh_dim *d)
{
    const json_t *of = json_object_get(j, "of");

    *d = (struct sh_dim){.add = json_integer_value(json_object_get(j, "add")),
                         .mul = json_integer_value(json_object_get(j, "mul")),
                         .n = (uint32_t)json_array_size(of)};
    if (d->n < 1 || d->n > SH_MAX_SYMBOLS + 1)
        return false;
    for (uint32_t i = 0; i < d->n; i++) {
        const json_t *f = json_array_get(of, i);

        d->f[i].plus = json_integer_value(json_array_get(f, 1));
        d->f[i].div = json_integer_value(json_array_get(f, 2));
        if (!read_of(json_array_get(f, 0), s, &d->f[i].of) || d->f[i].div < 1)
            return false;
    }
    return true;
}

static bool read_dim(const json_t *j, const struct sh_symbols *s, struct sh_dim *d)
{
    const json_t *most = json_object_get(j, "most");
    int32_t of;

    if (most) {
        if (json_object_get(most, "most") || !read_dim(most, s, d))
            return false;
        d->is_most = true;
        return true;
    }
    if (json_is_object(j))
        return read_derived(j, s, d);
    if (json_is_integer(j) && json_integer_value(j) >= 0)
        *d = sh_dim_fixed(json_integer_value(j));
    else if (read_of(j, s, &of))
        *d = sh_dim_is(of);
    else
        return false;
    return true;
}

int sh_dims_read(const json_t *io, const struct sh_symbols *s, struct sh_dim dims[SH_MAX_RANK],
                 size_t *rank, struct sh_err *err)
{
    const json_t *shape = json_object_get(io, "shape"), *more = json_object_get(io, "dims");
    bool ok = json_is_array(shape) && json_array_size(shape) <= SH_MAX_RANK &&
              (!more || json_array_size(more) == json_array_size(shape));

    *rank = ok ? json_array_size(shape) : 0;
    for (size_t i = 0; ok && i < *rank; i++)
        ok = read_dim(json_array_get(more ? more : shape, i), s, &dims[i]);
    return ok ? SH_OK
              : SH_FAIL(err, SH_E_BUG, "a tensor of a model is not described as it should be");
}
