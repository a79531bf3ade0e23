/* values.c - see inputs.h. */
#include "cli/data/inputs.h"
#include "cli/data/number.h"
#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

struct filling { /* the elements of one tensor, in order */
    struct tensor *t;
    size_t n, at; /* elements there are, and that were put */
};

/* As deep as lists go on at their first element. */
static int shape_of_values(const json_t *v, const char *name, struct tensor *t, struct sh_err *err)
{
    for (t->rank = 0; json_is_array(v); v = json_array_get(v, 0)) {
        if (t->rank == SH_MAX_RANK)
            return SH_FAIL(err, SH_E_INVALID, "\"%.100s\" has more than %d axes", name,
                           SH_MAX_RANK);
        t->dims[t->rank++] = (int64_t)json_array_size(v);
    }
    return t->rank > 0 ? SH_OK
                       : SH_FAIL(err, SH_E_INVALID, "\"%.100s\" must be a list of numbers", name);
}

static int allocate_values(struct filling *f, const char *name, struct sh_err *err)
{
    struct tensor *t = f->t;
    size_t n = 1, bytes = 0;
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < t->rank; i++)
        rc = t->dims[i] < 1 ? SH_FAIL(err, SH_E_INVALID, "\"%.100s\" has an empty axis", name)
                            : sh_mul_size(n, (size_t)t->dims[i], &n, err);
    if (!rc)
        rc = sh_mul_size(n, sh_dtype_bytes(t->dtype), &bytes, err);
    if (!rc && bytes > INPUTS_MAX_BYTES)
        rc = SH_FAIL(err, SH_E_TOOBIG, "\"%.100s\" has %zu bytes, at most %zu are sent", name,
                     bytes, INPUTS_MAX_BYTES);
    if (rc)
        return rc;
    t->data = t->own = malloc(bytes);
    f->n = n;
    return t->own ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu bytes", bytes);
}

static int filling_put(struct filling *f, const json_t *v, const char *name, struct sh_err *err)
{
    enum sh_dtype t = f->t->dtype;
    bool ok = json_is_integer(v) ? number_put_int(t, f->t->own, f->at, json_integer_value(v))
              : json_is_real(v)  ? number_put(t, f->t->own, f->at, json_real_value(v))
                                 : json_is_boolean(v) && t == SH_BOOL &&
                                      number_put_int(t, f->t->own, f->at, json_is_true(v));

    f->at++;
    return ok ? SH_OK
              : SH_FAIL(err, SH_E_INVALID, "element %zu of \"%.100s\" is no number that %s holds",
                        f->at - 1, name, sh_dtype_v2(t));
}

/* axis: of the lists that v stands among; is_flat: one list of all, whatever the shape. */
static int filling_fill(struct filling *f, const json_t *v, size_t axis, bool is_flat,
                        const char *name, struct sh_err *err)
{
    const json_t *x;
    size_t i;
    int rc = SH_OK;

    if (!is_flat && json_array_size(v) != (size_t)f->t->dims[axis])
        return SH_FAIL(err, SH_E_INVALID, "lists of axis %zu of \"%.100s\" differ in length", axis,
                       name);
    json_array_foreach((json_t *)v, i, x)
    {
        bool is_list = json_is_array(x);

        if (rc)
            break;
        if (is_list != (!is_flat && axis + 1 < f->t->rank))
            rc = SH_FAIL(err, SH_E_INVALID, "\"%.100s\" has numbers and lists side by side", name);
        else
            rc = is_list ? filling_fill(f, x, axis + 1, false, name, err)
                         : filling_put(f, x, name, err);
    }
    return rc;
}

/* shape: as the body of a request has it, for a flat list; NULL: that of the nested lists. */
static int values_add(struct tensors *t, const json_t *w, const json_t *v, const json_t *shape,
                      struct sh_err *err)
{
    const char *name = sh_json_text(w, "name");
    struct tensor x = {.dtype = sh_dtype_from_v2(sh_json_text(w, "datatype"))};
    struct filling f = {.t = &x};
    bool is_flat = shape && !json_is_array(json_array_get(v, 0));
    int rc = x.dtype == SH_N_DTYPES
                 ? SH_FAIL(err, SH_E_PROTO, "input \"%.100s\" of the model has an odd type", name)
                 : SH_OK;

    if (!rc && is_flat && (json_array_size(shape) < 1 || json_array_size(shape) > SH_MAX_RANK))
        rc = SH_FAIL(err, SH_E_INVALID, "\"shape\" of \"%.100s\" must be a list of 1 to %d numbers",
                     name, SH_MAX_RANK);
    if (!rc && is_flat) {
        x.rank = json_array_size(shape);
        for (size_t i = 0; i < x.rank; i++)
            x.dims[i] = json_integer_value(json_array_get(shape, i));
    } else if (!rc) {
        rc = shape_of_values(v, name, &x, err);
    }
    if (!rc)
        rc = allocate_values(&f, name, err);
    if (!rc && is_flat && json_array_size(v) != f.n)
        rc = SH_FAIL(err, SH_E_INVALID, "\"%.100s\" has %zu numbers, its shape wants %zu", name,
                     json_array_size(v), f.n);
    if (!rc)
        rc = filling_fill(&f, v, 0, is_flat, name, err);
    if (!rc)
        return tensors_add(t, w, &x, err);
    free(x.own);
    return rc;
}

/* Of the body of a request the one of that name. */
static const json_t *of_request(const json_t *inputs, const char *name)
{
    const json_t *x;
    size_t i;

    json_array_foreach((json_t *)inputs, i, x)
    {
        if (strcmp(sh_json_text(x, "name"), name) == 0)
            return x;
    }
    return NULL;
}

static int add_named_values(struct tensors *t, const json_t *w, const json_t *doc,
                            const json_t *inputs, struct sh_err *err)
{
    const char *name = sh_json_text(w, "name"), *type;
    const json_t *x = inputs ? of_request(inputs, name) : json_object_get(doc, name), *data = x;

    if (!x)
        return SH_FAIL(err, SH_E_INVALID, "the file has no \"%.100s\", an input of the model",
                       name);
    if (inputs) {
        type = sh_json_text(x, "datatype");
        data = json_object_get(x, "data");
        if (!json_is_array(data))
            return SH_FAIL(err, SH_E_INVALID, "input \"%.100s\" of the file has no \"data\"", name);
        if (type[0] && strcmp(type, sh_json_text(w, "datatype")) != 0)
            return SH_FAIL(err, SH_E_INVALID, "\"%.100s\" of the file is %.20s, the model takes %s",
                           name, type, sh_json_text(w, "datatype"));
    }
    return values_add(t, w, data, inputs ? json_object_get(x, "shape") : NULL, err);
}

int values_read(const char *path, const json_t *wanted, struct tensors *out, struct sh_err *err)
{
    json_t *doc = NULL, *w;
    const json_t *inputs = NULL;
    size_t i;
    int rc = sh_json_load_file(path, INPUTS_MAX_JSON, &doc, err);

    *out = (struct tensors){0};
    if (!rc && json_is_object(json_array_get(json_object_get(doc, "inputs"), 0)))
        inputs = json_object_get(doc, "inputs");
    if (!rc && json_is_array(doc) && json_array_size(wanted) != 1)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "the model has %zu inputs: give an object with the values of each by its name",
                     json_array_size(wanted));
    json_array_foreach((json_t *)wanted, i, w)
    {
        if (!rc && json_is_array(doc))
            rc = values_add(out, w, doc, NULL, err);
        else if (!rc)
            rc = add_named_values(out, w, doc, inputs, err);
    }
    json_decref(doc);
    if (rc)
        tensors_fini(out);
    return rc;
}
