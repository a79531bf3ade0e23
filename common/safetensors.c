/* safetensors.c - the safetensors format, for files of strangers.
 *
 * The data section has neither holes nor overlaps: sorted by offset, each tensor begins where the
 * one before it ends, and the last ends with the file. One comparison for each tensor proves that,
 * and no two readers can see different contents in one file.
 */
#include "common/safetensors.h"

#include "common/buf.h"
#include "common/filekind.h"
#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ALIGN 64u /* where the data section starts */
#define META "__metadata__"

struct sh_st {
    const unsigned char *base;
    size_t bytes;
    bool mapped;    /* base is OWNED, munmap() */
    json_t *header; /* OWNED; names and metadata live here */
    struct sh_st_tensor *tensors;
    const struct sh_st_tensor **by_name;
    size_t n;
};

static uint64_t get_le64(const unsigned char *p)
{
    uint64_t v = 0;

    for (int i = 7; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static void put_le64(unsigned char *p, uint64_t v)
{
    for (int i = 0; i < 8; i++, v >>= 8)
        p[i] = (unsigned char)v;
}

/* Bytes of a tensor by its shape and type. */
static int shape_bytes(const struct sh_st_tensor *t, size_t *out, struct sh_err *err)
{
    size_t n = sh_dtype_bytes(t->dtype);

    if (n == 0)
        return SH_FAIL(err, SH_E_INVALID, "tensor \"%.80s\": unknown element type", t->name);
    if (t->rank > SH_MAX_RANK)
        return SH_FAIL(err, SH_E_INVALID, "tensor \"%.80s\" has rank %zu, at most %d is supported",
                       t->name, t->rank, SH_MAX_RANK);
    for (size_t i = 0; i < t->rank; i++) {
        if (t->dims[i] < 0)
            return SH_FAIL(err, SH_E_INVALID, "tensor \"%.80s\": dimension %zu is negative",
                           t->name, i);
        if (sh_mul_size(n, (size_t)t->dims[i], &n, NULL) != SH_OK)
            return SH_FAIL(err, SH_E_TOOBIG, "tensor \"%.80s\": its shape is too large", t->name);
    }
    *out = n;
    return SH_OK;
}

static int read_st_shape(json_t *shape, struct sh_st_tensor *t, struct sh_err *err)
{
    t->rank = json_array_size(shape);
    if (t->rank > SH_MAX_RANK)
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "tensor \"%.80s\" has rank %zu, at most %d is supported", t->name, t->rank,
                       SH_MAX_RANK);
    for (size_t i = 0; i < t->rank; i++) {
        const json_t *d = json_array_get(shape, i);

        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return SH_FAIL(err, SH_E_INVALID,
                           "tensor \"%.80s\": dimension %zu must be a whole number from 0", t->name,
                           i);
        t->dims[i] = json_integer_value(d);
    }
    return SH_OK;
}

/* One entry of the header; `data` and `n_data` are the section that offsets refer to. */
static int read_st_entry(const char *name, json_t *entry, const unsigned char *data, size_t n_data,
                         struct sh_st_tensor *t, struct sh_err *err)
{
    const char *dtype = NULL;
    json_t *shape = NULL, *offsets = NULL, *from, *to;
    size_t want = 0;
    char what[100];
    const struct sh_json_field f[] = {
        {"dtype", SH_JSON_STR, &dtype, .required = true, .max = 32},
        {"shape", SH_JSON_ARR, &shape, .required = true},
        {"data_offsets", SH_JSON_ARR, &offsets, .required = true, .min = 2, .max = 2},
    };
    int rc;

    sh_strlcpy(what, name, sizeof(what));
    rc = sh_json_read(entry, what, f, SH_ARRAY_LEN(f), err);
    if (rc)
        return rc;
    t->name = name;
    t->dtype = sh_dtype_from_st(dtype);
    if (t->dtype == SH_N_DTYPES)
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "tensor \"%.80s\": element type \"%s\" is not supported", name, dtype);
    rc = read_st_shape(shape, t, err);
    if (!rc)
        rc = shape_bytes(t, &want, err);
    if (rc)
        return rc;
    from = json_array_get(offsets, 0);
    to = json_array_get(offsets, 1);
    if (!json_is_integer(from) || !json_is_integer(to) || json_integer_value(from) < 0 ||
        json_integer_value(to) < json_integer_value(from) ||
        (uint64_t)json_integer_value(to) > n_data)
        return SH_FAIL(err, SH_E_INVALID,
                       "tensor \"%.80s\": its offsets are outside of the data (%zu bytes)", name,
                       n_data);
    t->data = data + json_integer_value(from);
    t->bytes = (size_t)(json_integer_value(to) - json_integer_value(from));
    if (t->bytes != want)
        return SH_FAIL(err, SH_E_INVALID,
                       "tensor \"%.80s\": its offsets span %zu bytes, its shape and type need %zu",
                       name, t->bytes, want);
    return SH_OK;
}

static int by_offset(const void *pa, const void *pb)
{
    const struct sh_st_tensor *a = pa, *b = pb;

    if (a->data != b->data)
        return (const char *)a->data < (const char *)b->data ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name); /* several empty tensors */
}

static int by_tensor_name(const void *pa, const void *pb)
{
    const struct sh_st_tensor *const *a = pa, *const *b = pb;

    return strcmp((*a)->name, (*b)->name);
}

static int check_meta(const json_t *meta, struct sh_err *err)
{
    const char *key;
    json_t *v;

    if (!json_is_object(meta))
        return SH_FAIL(err, SH_E_INVALID, "the safetensors metadata must be an object");
    json_object_foreach((json_t *)meta, key, v)
    {
        if (!json_is_string(v))
            return SH_FAIL(err, SH_E_INVALID, "safetensors metadata \"%.80s\" must be a string",
                           key);
    }
    return SH_OK;
}

static int check_layout(const struct sh_st *s, const unsigned char *data, size_t n_data,
                        struct sh_err *err)
{
    const unsigned char *end = data;

    for (size_t i = 0; i < s->n; i++) {
        const struct sh_st_tensor *t = &s->tensors[i];

        if ((const unsigned char *)t->data < end)
            return SH_FAIL(err, SH_E_INVALID, "tensor \"%.80s\" overlaps \"%.80s\"", t->name,
                           s->tensors[i - 1].name);
        if ((const unsigned char *)t->data > end)
            return SH_FAIL(err, SH_E_INVALID, "there is a hole in the data before tensor \"%.80s\"",
                           t->name);
        end += t->bytes;
    }
    if (end != data + n_data)
        return SH_FAIL(err, SH_E_INVALID,
                       "%zu bytes at the end of the safetensors file belong to no tensor",
                       (size_t)(data + n_data - end));
    return SH_OK;
}

static int read_tensors(struct sh_st *s, const unsigned char *data, size_t n_data,
                        struct sh_err *err)
{
    size_t n = json_object_size(s->header);
    const char *key;
    json_t *v;
    int rc;

    if (n > SH_ST_MAX_TENSORS)
        return SH_FAIL(err, SH_E_TOOBIG,
                       "the safetensors file has %zu entries, at most %u are allowed", n,
                       SH_ST_MAX_TENSORS);
    s->tensors = calloc(n + 1, sizeof(*s->tensors));
    s->by_name = calloc(n + 1, sizeof(*s->by_name));
    if (!s->tensors || !s->by_name)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a list of %zu tensors", n);
    json_object_foreach(s->header, key, v)
    {
        if (strcmp(key, META) == 0)
            rc = check_meta(v, err);
        else
            rc = read_st_entry(key, v, data, n_data, &s->tensors[s->n++], err);
        if (rc)
            return rc;
    }
    qsort(s->tensors, s->n, sizeof(*s->tensors), by_offset);
    for (size_t i = 0; i < s->n; i++)
        s->by_name[i] = &s->tensors[i];
    qsort(s->by_name, s->n, sizeof(const struct sh_st_tensor *), by_tensor_name);
    return check_layout(s, data, n_data, err);
}

static int parse_header(struct sh_st *s, struct sh_err *err)
{
    struct sh_err why = {0};
    enum sh_file_kind kind = sh_file_kind(s->base, s->bytes);
    uint64_t n_header;
    int rc;

    if (kind != SH_FILE_OTHER && kind != SH_FILE_SAFETENSORS)
        return SH_FAIL(err, SH_E_INVALID, "this is no safetensors file but %s",
                       sh_file_kind_text(kind));
    if (s->bytes < 8)
        return SH_FAIL(err, SH_E_INVALID,
                       "the safetensors file has %zu bytes, at least 8 are needed", s->bytes);
    n_header = get_le64(s->base);
    if (n_header > SH_ST_MAX_HEADER)
        return SH_FAIL(
            err, SH_E_TOOBIG,
            "this is no safetensors file: its header claims %llu bytes, at most %u are allowed",
            (unsigned long long)n_header, SH_ST_MAX_HEADER);
    if (n_header > s->bytes - 8)
        return SH_FAIL(err, SH_E_INVALID,
                       "the safetensors file is cut: its header needs %llu bytes, %zu are there",
                       (unsigned long long)n_header, s->bytes - 8);
    rc = sh_json_parse((const char *)s->base + 8, (size_t)n_header, SH_ST_MAX_HEADER, &s->header,
                       &why);
    if (rc)
        return SH_FAIL(err, rc, "this is no safetensors file, or its header is broken: %.200s",
                       why.msg);
    if (!json_is_object(s->header))
        return SH_FAIL(err, SH_E_INVALID, "the safetensors header must be an object");
    return read_tensors(s, s->base + 8 + n_header, s->bytes - 8 - (size_t)n_header, err);
}

int sh_st_open_mem(const void *data, size_t bytes, struct sh_st **out, struct sh_err *err)
{
    struct sh_st *s = calloc(1, sizeof(*s));
    int rc;

    *out = NULL;
    if (!s)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a safetensors reader");
    s->base = data;
    s->bytes = bytes;
    rc = parse_header(s, err);
    if (rc) {
        sh_st_close(s);
        return rc;
    }
    *out = s;
    return SH_OK;
}

int sh_st_open_fd(int fd, struct sh_st **out, struct sh_err *err)
{
    void *base;
    struct stat st;
    int rc;

    *out = NULL;
    if (fstat(fd, &st) != 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not look at a safetensors file");
    if (!S_ISREG(st.st_mode) || st.st_size < 8)
        return SH_FAIL(err, SH_E_INVALID,
                       "the safetensors file must be a regular file of at least 8 bytes");
    base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (base == MAP_FAILED)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not map a safetensors file");
    rc = sh_st_open_mem(base, (size_t)st.st_size, out, err);
    if (rc)
        munmap(base, (size_t)st.st_size);
    else
        (*out)->mapped = true;
    return rc;
}

int sh_st_open(const char *path, struct sh_st **out, struct sh_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;

    *out = NULL;
    rc = fd < 0 ? SH_FAIL_ERRNO(err, sh_open_rc(errno), "could not open a safetensors file")
                : sh_st_open_fd(fd, out, err);
    if (rc)
        sh_err_detail(err, "file %s", path);
    if (fd >= 0)
        close(fd);
    return rc;
}

void sh_st_close(struct sh_st *s)
{
    if (!s)
        return;
    free(s->tensors);
    free(s->by_name);
    json_decref(s->header);
    if (s->mapped)
        munmap((void *)s->base, s->bytes);
    free(s);
}

size_t sh_st_count(const struct sh_st *s)
{
    return s->n;
}

const struct sh_st_tensor *sh_st_at(const struct sh_st *s, size_t i)
{
    return i < s->n ? &s->tensors[i] : NULL;
}

const struct sh_st_tensor *sh_st_find(const struct sh_st *s, const char *name)
{
    const struct sh_st_tensor key = {.name = name}, *pkey = &key;
    const struct sh_st_tensor **hit =
        bsearch(&pkey, s->by_name, s->n, sizeof(const struct sh_st_tensor *), by_tensor_name);

    return hit ? *hit : NULL;
}

size_t sh_st_offset(const struct sh_st *s, const struct sh_st_tensor *t)
{
    return (size_t)((const unsigned char *)t->data - s->base);
}

const char *sh_st_meta(const struct sh_st *s, const char *key)
{
    return json_string_value(json_object_get(json_object_get(s->header, META), key));
}

/* ---------------------------------------------------------------- writing */

static int no_header_memory(struct sh_err *err)
{
    return SH_FAIL(err, SH_E_NOMEM, "could not allocate a safetensors header");
}

static bool is_utf8_text(const char *s)
{
    size_t n = strlen(s);

    for (size_t i = 0, len; i < n; i += len) {
        len = sh_utf8_len(s + i);
        if (len == 0)
            return false;
    }
    return true;
}

static int add_meta(json_t *header, const char *const *meta, struct sh_err *err)
{
    json_t *m;

    if (!meta || !meta[0])
        return SH_OK;
    m = json_object();
    if (json_object_set_new(header, META, m) != 0) /* refuses a NULL too */
        return no_header_memory(err);
    for (size_t i = 0; meta[i]; i += 2) {
        if (!meta[i + 1] || !is_utf8_text(meta[i]) || !is_utf8_text(meta[i + 1]))
            return SH_FAIL(err, SH_E_INVALID, "metadata \"%.80s\" must have a value of UTF-8 text",
                           meta[i]);
        if (json_object_set_new(m, meta[i], json_string(meta[i + 1])) != 0)
            return no_header_memory(err);
    }
    return SH_OK;
}

static json_t *json_numbers(const int64_t *v, size_t n)
{
    json_t *a = json_array();

    for (size_t i = 0; a && i < n; i++) {
        if (json_array_append_new(a, json_integer(v[i])) != 0) {
            json_decref(a);
            return NULL;
        }
    }
    return a;
}

static int add_header_tensor(json_t *header, const struct sh_st_tensor *t, size_t *offset,
                             struct sh_err *err)
{
    int64_t range[2];
    size_t want = 0;
    json_t *entry;
    int rc = shape_bytes(t, &want, err);

    if (rc)
        return rc;
    if (want != t->bytes)
        return SH_FAIL(err, SH_E_INVALID,
                       "tensor \"%.80s\" has %zu bytes, its shape and type need %zu", t->name,
                       t->bytes, want);
    if (!is_utf8_text(t->name))
        return SH_FAIL(err, SH_E_INVALID, "the tensor name \"%.80s\" is not UTF-8 text", t->name);
    if (strcmp(t->name, META) == 0 || json_object_get(header, t->name))
        return SH_FAIL(err, SH_E_INVALID, "the tensor name \"%.80s\" is taken", t->name);
    range[0] = (int64_t)*offset;
    rc = sh_add_size(*offset, want, offset, err);
    if (rc)
        return rc;
    range[1] = (int64_t)*offset;
    entry = json_object();
    if (json_object_set_new(header, t->name, entry) != 0 ||
        json_object_set_new(entry, "dtype", json_string(sh_dtype_st(t->dtype))) != 0 ||
        json_object_set_new(entry, "shape", json_numbers(t->dims, t->rank)) != 0 ||
        json_object_set_new(entry, "data_offsets", json_numbers(range, 2)) != 0)
        return no_header_memory(err);
    return SH_OK;
}

/* Length, header and the blanks that align the data. *bytes: of the whole file. */
static int build_head(const struct sh_st_tensor *t, size_t n, const char *const *meta,
                      struct sh_buf *head, size_t *bytes, struct sh_err *err)
{
    json_t *header = json_object();
    char *text = NULL, *room = NULL;
    size_t n_data = 0, len, padded;
    int rc;

    if (!header)
        return no_header_memory(err);
    if (n > SH_ST_MAX_TENSORS) {
        rc = SH_FAIL(err, SH_E_TOOBIG, "cannot write %zu tensors into one file", n);
        goto out;
    }
    rc = add_meta(header, meta, err);
    for (size_t i = 0; !rc && i < n; i++)
        rc = add_header_tensor(header, &t[i], &n_data, err);
    if (rc)
        goto out;
    text = json_dumps(header, JSON_COMPACT);
    if (!text) {
        rc = no_header_memory(err);
        goto out;
    }
    len = strlen(text);
    padded = SH_ALIGN_UP(8 + len, ALIGN);
    rc = sh_buf_reserve(head, padded, &room, err);
    if (rc)
        goto out;
    memset(room, ' ', padded);
    put_le64((unsigned char *)room, padded - 8);
    memcpy(room + 8, text, len);
    head->len += padded;
    rc = sh_add_size(padded, n_data, bytes, err);
out:
    free(text);
    json_decref(header);
    return rc;
}

int sh_st_head(const struct sh_st_tensor *t, size_t n, const char *const *meta, void **out,
               size_t *head_bytes, size_t *file_bytes, struct sh_err *err)
{
    struct sh_buf head;
    int rc;

    *out = NULL;
    sh_buf_init(&head, SH_ST_MAX_HEADER);
    rc = build_head(t, n, meta, &head, file_bytes, err);
    if (!rc) {
        *head_bytes = head.len;
        *out = sh_buf_take(&head);
    }
    sh_buf_fini(&head);
    return rc;
}

int sh_st_write(const char *path, const struct sh_st_tensor *t, size_t n, const char *const *meta,
                struct sh_err *err)
{
    struct sh_buf head;
    size_t total = 0;
    char *tmp = NULL;
    bool is_written;
    int fd = -1, rc;

    sh_buf_init(&head, SH_ST_MAX_HEADER);
    rc = build_head(t, n, meta, &head, &total, err);
    if (!rc)
        rc = sh_asprintf(err, &tmp, "%s.tmp-XXXXXX", path);
    if (rc)
        goto out;
    fd = mkostemp(tmp, O_CLOEXEC);
    if (fd < 0 || fchmod(fd, 0640) != 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not create a safetensors file");
        goto out;
    }
    is_written = sh_write_all(fd, head.data, head.len);
    for (size_t i = 0; is_written && i < n; i++)
        is_written = sh_write_all(fd, t[i].data, t[i].bytes);
    if (!is_written) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write a safetensors file");
        goto out;
    }
    if (fsync(fd) != 0 || rename(tmp, path) != 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not finish a safetensors file");
        goto out;
    }
    free(tmp);
    tmp = NULL;
    rc = sh_sync_folder(path, err);
out:
    if (fd >= 0)
        close(fd);
    if (rc) {
        sh_err_detail(err, "file %s", path);
        if (tmp && fd >= 0)
            unlink(tmp);
    }
    free(tmp);
    sh_buf_fini(&head);
    return rc;
}
