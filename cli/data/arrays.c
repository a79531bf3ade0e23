/* arrays.c - see arrays.h. */
#include "cli/data/arrays.h"

#include "cli/data/inputs.h"
#include "cli/data/number.h"
#include "cli/data/zip.h"
#include "cli/files/user_file.h"
#include "cli/text/out.h"
#include "common/io.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK 65536 /* elements */
#define LABEL "label"

struct array {
    char *name;  /* OWNED */
    char *path;  /* OWNED: of messages */
    int fd;      /* OWNED */
    uint64_t at; /* of the first element */
    struct tensor is;
    struct sh_st_tensor to;
};

struct arrays {
    struct array list[TENSORS_MAX];
    size_t n;
    const char *tmp_dir;
};

static void arrays_fini(struct arrays *a)
{
    for (size_t i = 0; i < a->n; i++) {
        if (a->list[i].fd >= 0)
            close(a->list[i].fd);
        free(a->list[i].name);
        free(a->list[i].path);
    }
}

/* ---------------------------------------------------------------- what there is */

static enum sh_dtype stored_type(const char *name, enum sh_dtype is)
{
    const bool is_int = is != SH_BOOL && is != SH_F32 && is != SH_F16 && is != SH_BF16;

    if (is == SH_F64)
        return SH_F32;
    return strcmp(name, LABEL) == 0 && is_int ? SH_I64 : is;
}

/* The array that begins at `from` and has so many bytes. TAKES what x holds, on failure too. */
static int add_array(struct arrays *a, struct array x, uint64_t from, int64_t bytes,
                     struct sh_err *err)
{
    struct array *to = &a->list[a->n];
    int rc;

    if (a->n == TENSORS_MAX) {
        close(x.fd);
        free(x.name);
        free(x.path);
        return SH_FAIL(err, SH_E_TOOBIG, "a dataset takes at most %d arrays", TENSORS_MAX);
    }
    *to = x;
    a->n++;
    rc = npy_find(x.fd, x.path, from, bytes, &to->is, &to->at, err);
    if (rc)
        return rc;
    if (to->is.rank < 1 || to->is.dims[0] < 1)
        return SH_FAIL(err, SH_E_INVALID, "\"%s\" has no samples along its first axis", x.path);
    if (to->is.dims[0] != a->list[0].is.dims[0])
        return SH_FAIL(err, SH_E_INVALID, "\"%s\" has %lld samples, \"%s\" has %lld", x.path,
                       (long long)to->is.dims[0], a->list[0].path,
                       (long long)a->list[0].is.dims[0]);
    for (size_t i = 0; i + 1 < a->n; i++)
        if (strcmp(a->list[i].name, x.name) == 0)
            return SH_FAIL(err, SH_E_INVALID, "two arrays have the name \"%.80s\": say TENSOR=FILE",
                           x.name);
    to->to = (struct sh_st_tensor){
        .name = x.name, .dtype = stored_type(x.name, to->is.dtype), .rank = to->is.rank};
    memcpy(to->to.dims, to->is.dims, sizeof(to->to.dims));
    to->to.bytes = sh_dtype_bytes(to->to.dtype);
    for (size_t i = 0; !rc && i < to->to.rank; i++)
        rc = sh_mul_size(to->to.bytes, (size_t)to->to.dims[i], &to->to.bytes, err);
    return rc;
}

/* "x" of "dir/x.npy" */
static int stem(const char *path, char **out, struct sh_err *err)
{
    const char *slash = strrchr(path, '/'), *from = slash ? slash + 1 : path;
    const char *dot = strrchr(from, '.');

    return sh_asprintf(err, out, "%.*s", (int)(dot && dot > from ? dot - from : (long)strlen(from)),
                       from);
}

static int arrays_add_file(struct arrays *a, const char *file, struct sh_err *err)
{
    const char *eq = access(file, F_OK) == 0 ? NULL : strchr(file, '=');
    struct array x = {.fd = -1};
    int64_t bytes = 0;
    int rc;

    if (eq == file)
        return SH_FAIL(err, SH_E_INVALID, "\"%s\" has no name before the =: want TENSOR=FILE",
                       file);
    rc = sh_strdup(eq ? eq + 1 : file, &x.path, err);
    if (!rc)
        rc = user_file_open(x.path, &x.fd, &bytes, err);
    if (!rc && eq)
        rc = sh_asprintf(err, &x.name, "%.*s", (int)(eq - file), file);
    else if (!rc)
        rc = stem(file, &x.name, err);
    if (!rc)
        return add_array(a, x, 0, bytes, err);
    if (x.fd >= 0)
        close(x.fd);
    free(x.path);
    free(x.name);
    return rc;
}

/* One of the arrays of an .npz: "x.npy". */
static int add_zip_array(const struct zip_member *m, void *arg, struct sh_err *err)
{
    struct arrays *a = arg;
    struct array x = {.fd = -1};
    uint64_t from = 0;
    int rc = sh_asprintf(err, &x.path, "%s of %s", m->name, m->zip);

    if (!rc)
        rc = stem(m->name, &x.name, err);
    if (!rc)
        rc = zip_member_open(m, a->tmp_dir, &x.fd, &from, err);
    if (!rc)
        return add_array(a, x, from, (int64_t)m->bytes, err);
    free(x.path);
    free(x.name);
    return rc;
}

static int find_arrays(struct arrays *a, char **files, size_t n, struct sh_err *err)
{
    enum sh_file_kind kind;
    int rc = SH_OK;

    if (n == 1 && access(files[0], F_OK) == 0) {
        rc = user_file_kind(files[0], &kind, err);
        if (!rc && kind == SH_FILE_ZIP)
            rc = zip_each(files[0], add_zip_array, a, err);
        if (!rc && kind == SH_FILE_ZIP && a->n == 0)
            rc = SH_FAIL(err, SH_E_INVALID, "\"%s\" holds no array", files[0]);
        if (rc || kind == SH_FILE_ZIP)
            return rc;
    }
    for (size_t i = 0; !rc && i < n; i++)
        rc = arrays_add_file(a, files[i], err);
    return rc;
}

/* ---------------------------------------------------------------- the file */

/* `first`: of the array, for the message. */
static int convert_array(const struct array *x, const char *in, uint64_t first, size_t n, char *out,
                         struct sh_err *err)
{
    for (size_t i = 0; i < n; i++) {
        const double v = number_get(x->is.dtype, in, i);

        if (!number_put(x->to.dtype, out, i, v))
            return SH_FAIL(err, SH_E_INVALID,
                           "\"%s\" has %.17g as its element %llu, more than %s holds", x->path, v,
                           (unsigned long long)(first + i), sh_dtype_v2(x->to.dtype));
    }
    return SH_OK;
}

static int copy_array(struct setfile *f, const struct array *x, uint64_t at, struct sh_err *err)
{
    const size_t in_bytes = sh_dtype_bytes(x->is.dtype), out_bytes = sh_dtype_bytes(x->to.dtype);
    const uint64_t n = x->to.bytes / out_bytes;
    char *in = malloc(CHUNK * in_bytes), *out = malloc(CHUNK * out_bytes);
    int rc = in && out ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a buffer");

    for (uint64_t i = 0; !rc && i < n; i += CHUNK) {
        const size_t k = (size_t)SH_MIN(n - i, (uint64_t)CHUNK);
        const bool as_is = x->is.dtype == x->to.dtype;

        if (sh_pread_all(x->fd, in, k * in_bytes, x->at + i * in_bytes) != (ssize_t)(k * in_bytes))
            rc = SH_FAIL(err, SH_E_IO, "could not read \"%s\", or it changes while it is read",
                         x->path);
        if (!rc && !as_is)
            rc = convert_array(x, in, i, k, out, err);
        if (!rc)
            rc = setfile_put(f, at + i * out_bytes, as_is ? in : out, k * out_bytes, err);
    }
    free(in);
    free(out);
    return rc;
}

int arrays_read(struct cli *c, char **files, size_t n, struct setfile *out, struct sh_err *err)
{
    struct arrays a = {.tmp_dir = c->conf->tmp_dir};
    struct sh_st_tensor t[TENSORS_MAX];
    uint64_t at = 0;
    int rc = find_arrays(&a, files, n, err);

    *out = (struct setfile){.fd = -1};
    if (!rc && a.n == 0)
        rc = SH_FAIL(err, SH_E_INVALID, "\"%s\" has no array", files[0]);
    for (size_t i = 0; i < a.n; i++)
        t[i] = a.list[i].to;
    if (!rc)
        rc = setfile_new(a.tmp_dir, t, a.n, NULL, out, err);
    for (size_t i = 0; !rc && i < a.n; i++) {
        const struct array *x = &a.list[i];

        rc = copy_array(out, x, at, err);
        at += x->to.bytes;
        if (!rc && x->is.dtype != x->to.dtype)
            out_say(c, "%s is %s here: it was %s.", x->name, sh_dtype_v2(x->to.dtype),
                    sh_dtype_v2(x->is.dtype));
    }
    if (!rc)
        rc = setfile_end(out, t, a.n, NULL, err);
    arrays_fini(&a);
    return rc;
}
