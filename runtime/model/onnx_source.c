/* onnx_source.c - see onnx_source.h. */
#include "runtime/model/onnx_source.h"

#include "common/external.h"
#include "common/filekind.h"
#include "common/mem.h"
#include "common/ustar.h"
#include "runtime/model/graph_int.h"
#include "runtime/model/names.h"
#include "runtime/model/onnx.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_PAX_BYTES (1u << 20)

struct file {
    char *name; /* OWNED; from the model's folder on, in a tar file from its root on */
    const uint8_t *data;
    size_t bytes, taken, looked; /* taken, looked: by tensors */
    bool is_map;                 /* of its own */
};

struct onnx_source {
    void *map; /* of path */
    size_t map_bytes;
    const uint8_t *model;
    size_t model_bytes;
    char *prefix; /* of a tar file: the model's folder in it, "" or with a slash at its end */
    int folder;   /* -1: none may be read */
    struct file *files;
    size_t n_files, cap_files;
    struct names names; /* of files: their number */
};

/* ---------------------------------------------------------------- names */

static bool is_name_inside(const char *name)
{
    return graph__name_ok(name) && sh_external_inside(name);
}

/* "./a" is "a". */
static const char *without_dot(const char *name)
{
    while (name[0] == '.' && name[1] == '/')
        name += 2;
    return name;
}

static int add_source_file(struct onnx_source *s, const char *name, struct file f,
                           struct sh_err *err)
{
    int rc = sh_grow(&s->files, &s->cap_files, s->n_files + 1, sizeof(*s->files),
                     ONNX_SOURCE_MAX_FILES, "files of a model", err);

    if (!rc)
        rc = sh_strdup(name, &f.name, err);
    if (!rc)
        rc = names_put(&s->names, f.name, (uint32_t)s->n_files, err);
    if (rc)
        free(f.name);
    else
        s->files[s->n_files++] = f;
    return rc;
}

/* ---------------------------------------------------------------- a tar file */

static int no_pack(struct sh_err *err, const char *why, const char *name)
{
    char clean[128];

    return SH_FAIL(err, SH_E_INVALID, "the tar file of the model %s%s%s", why, name ? ": " : "",
                   name ? graph__clean(name, clean, sizeof(clean)) : "");
}

static bool has_end(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);

    return n >= k && strcmp(name + n - k, end) == 0;
}

/* What a Mac adds to each file, "._name". */
static bool is_fork(const char *name)
{
    const char *slash = strrchr(name, '/');

    return strncmp(slash ? slash + 1 : name, "._", 2) == 0;
}

static int add_packed(struct onnx_source *s, const struct ustar_entry *e, const uint8_t *data,
                      struct sh_err *err)
{
    const char *name = without_dot(e->name);

    if (is_fork(name))
        return SH_OK;
    if (!is_name_inside(name))
        return no_pack(err, "has a file outside of it", name);
    if (names_get(&s->names, name) != NAMES_NONE)
        return no_pack(err, "has a file twice", name);
    if (has_end(name, ".onnx")) {
        if (s->model)
            return no_pack(err, "has more than one .onnx file; send one model at a time", name);
        s->model = data;
        s->model_bytes = (size_t)e->size;
        free(s->prefix);
        s->prefix = strndup(name, strrchr(name, '/') ? (size_t)(strrchr(name, '/') + 1 - name) : 0);
        if (!s->prefix)
            return SH_FAIL(err, SH_E_NOMEM, "could not allocate a path");
    }
    return add_source_file(s, name, (struct file){.data = data, .bytes = (size_t)e->size}, err);
}

/* Goes over the entries; *said is what the one before says of the next. */
static int read_tar_entry(struct onnx_source *s, size_t *at, struct ustar_entry *said, bool *is_end,
                          struct sh_err *err)
{
    const uint8_t *base = s->map;
    struct ustar_entry e;
    enum ustar_kind kind;
    size_t room;

    *is_end = s->map_bytes - *at < USTAR_BLOCK;
    if (*is_end)
        return SH_OK; /* some writers leave the end out */
    kind = ustar_read(base + *at, &e);
    *is_end = kind == USTAR_END;
    if (*is_end)
        return SH_OK;
    if (kind == USTAR_BAD)
        return no_pack(err, "is damaged", NULL);
    if (kind == USTAR_FILE && said->name[0])
        sh_strlcpy(e.name, said->name, sizeof(e.name));
    if (kind == USTAR_FILE && said->size)
        e.size = said->size;
    *at += USTAR_BLOCK;
    room = s->map_bytes - *at;
    if (e.size > room)
        return no_pack(err, "is cut off", e.name);
    if (kind == USTAR_PAX) {
        *said = (struct ustar_entry){{0}, 0};
        if (e.size > MAX_PAX_BYTES || !ustar_pax((const char *)base + *at, (size_t)e.size, said))
            return no_pack(err, "is damaged", NULL);
    } else if (kind == USTAR_LONG) {
        if (!ustar_long((const char *)base + *at, (size_t)e.size, said))
            return no_pack(err, "has a file with too long a name", NULL);
    } else if (kind == USTAR_OTHER) {
        return no_pack(err, "holds something that is neither a file nor a folder", e.name);
    } else if (kind != USTAR_PAX_GLOBAL) {
        int rc = kind == USTAR_FILE ? add_packed(s, &e, base + *at, err) : SH_OK;

        *said = (struct ustar_entry){{0}, 0};
        if (rc)
            return rc;
    }
    *at += (size_t)SH_MIN(ustar_padded(e.size), (uint64_t)room);
    return SH_OK;
}

static int read_pack(struct onnx_source *s, struct sh_err *err)
{
    struct ustar_entry said = {{0}, 0};
    bool is_end = false;
    size_t at = 0;
    int rc = SH_OK;

    while (rc == SH_OK && !is_end)
        rc = read_tar_entry(s, &at, &said, &is_end, err);
    if (!rc && !s->model)
        rc = no_pack(err, "has no .onnx file", NULL);
    if (!rc && s->model_bytes == 0)
        rc = no_pack(err, "has an empty .onnx file", NULL);
    return rc;
}

/* ---------------------------------------------------------------- files of the system */

/* *data stays NULL for an empty file. */
static int map_whole(int fd, void **data, size_t *bytes, struct sh_err *err)
{
    struct stat st;

    *data = NULL;
    if (fstat(fd, &st) != 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not open the file");
    if (!S_ISREG(st.st_mode))
        return SH_FAIL(err, SH_E_INVALID, "it is no regular file");
    *bytes = (size_t)st.st_size;
    if (st.st_size == 0)
        return SH_OK;
    *data = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (*data == MAP_FAILED) {
        *data = NULL;
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not map the file");
    }
    return SH_OK;
}

static int map_beside(struct onnx_source *s, const char *what, const char *name, struct sh_err *err)
{
    struct sh_err why = {0};
    struct file f = {.is_map = true};
    char clean[128];
    void *data = NULL;
    int fd = s->folder < 0 ? -1 : sh_external_open(s->folder, name), rc;

    graph__clean(name, clean, sizeof(clean));
    if (fd < 0 && (errno == ELOOP || errno == EMLINK) && s->folder >= 0)
        return SH_FAIL(err, SH_E_INVALID,
                       "%s lies in \"%s\", which is a link; put the file itself beside the model",
                       what, clean);
    if (fd < 0)
        return SH_FAIL(err, SH_E_INVALID,
                       "%s lies in another file, \"%s\", which is not there: it belongs beside the "
                       "model, or with it into one tar file",
                       what, clean);
    rc = map_whole(fd, &data, &f.bytes, &why);
    close(fd);
    if (rc)
        return SH_FAIL(err, rc, "%s lies in \"%s\": %s", what, clean, why.msg);
    f.data = data;
    rc = add_source_file(s, name, f, err);
    if (rc && data)
        munmap(data, f.bytes);
    return rc;
}

/* ---------------------------------------------------------------- both */

void onnx_source_close(void *source)
{
    struct onnx_source *s = source;

    if (!s)
        return;
    for (size_t i = 0; i < s->n_files; i++) {
        if (s->files[i].is_map && s->files[i].data)
            munmap((void *)(uintptr_t)s->files[i].data, s->files[i].bytes);
        free(s->files[i].name);
    }
    names_fini(&s->names);
    if (s->map)
        munmap(s->map, s->map_bytes);
    if (s->folder >= 0)
        close(s->folder);
    free(s->files);
    free(s->prefix);
    free(s);
}

static int open_source_folder(struct onnx_source *s, const char *path, struct sh_err *err)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");

    if (!dir)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a path");
    s->folder = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    free(dir);
    return s->folder < 0 ? SH_FAIL_ERRNO(err, SH_E_IO, "could not open the folder of the model")
                         : SH_OK;
}

static int open_model(struct onnx_source *s, const char *path, struct sh_err *err)
{
    struct sh_err why = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;

    if (fd < 0) {
        rc = SH_FAIL_ERRNO(err, errno == ENOENT ? SH_E_NOTFOUND : SH_E_IO,
                           "could not open the ONNX file");
        sh_err_detail(err, "file %s", path);
        return rc;
    }
    rc = map_whole(fd, &s->map, &s->map_bytes, &why);
    close(fd);
    if (!rc && !s->map)
        rc = SH_FAIL(&why, SH_E_INVALID, "it is empty");
    if (rc)
        return SH_FAIL(err, rc, "the ONNX file cannot be read: %s", why.msg);
    if (sh_file_kind(s->map, s->map_bytes) == SH_FILE_TAR)
        return read_pack(s, err);
    s->model = s->map;
    s->model_bytes = s->map_bytes;
    return SH_OK;
}

int onnx_source_open(const char *path, bool beside, struct onnx_source **out, struct sh_err *err)
{
    struct onnx_source *s = calloc(1, sizeof(*s));
    int rc;

    *out = NULL;
    if (!s)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a model's files");
    s->folder = -1;
    rc = names_init(&s->names, err);
    if (!rc)
        rc = open_model(s, path, err);
    if (!rc && s->model_bytes > ONNX_MAX_FILE_BYTES)
        rc = SH_FAIL(err, SH_E_TOOBIG,
                     "the ONNX file has %zu bytes, more than %zu: export it with external data",
                     s->model_bytes, ONNX_MAX_FILE_BYTES);
    if (!rc && beside && !s->prefix)
        rc = open_source_folder(s, path, err);
    if (rc)
        onnx_source_close(s);
    else
        *out = s;
    return rc;
}

const uint8_t *onnx_source_model(const struct onnx_source *s, size_t *bytes)
{
    *bytes = s->model_bytes;
    return s->model;
}

bool onnx_source_packed(const struct onnx_source *s, const char *name, const uint8_t **data,
                        size_t *bytes)
{
    char *full = NULL;
    uint32_t i = NAMES_NONE;

    if (s->prefix && sh_asprintf(NULL, &full, "%s%s", s->prefix, name) == SH_OK)
        i = names_get(&s->names, full);
    free(full);
    if (i == NAMES_NONE)
        return false;
    *data = s->files[i].data;
    *bytes = s->files[i].bytes;
    return true;
}

struct search {       /* for a tensor that names a file */
    const char *name; /* from the model's folder on */
    bool found;
};

static bool is_it(const char *location, size_t n, void *arg)
{
    struct search *s = arg;

    while (n > 1 && location[0] == '.' && location[1] == '/') {
        location += 2;
        n -= 2;
    }
    s->found = strlen(s->name) == n && memcmp(s->name, location, n) == 0;
    return !s->found;
}

/* Beside another folder than the model's: its version would take floats. */
static int refuse_loose_declared(const struct onnx_source *s, struct sh_err *err)
{
    for (size_t i = 0; i < s->n_files; i++) {
        const char *name = s->files[i].name, *slash = strrchr(name, '/');
        const size_t n = slash ? (size_t)(slash + 1 - name) : 0;
        char clean[128];

        if (strcmp(name + n, SH_EXTERNAL_PREPROCESS_FILE) == 0 &&
            (n != strlen(s->prefix) || strncmp(name, s->prefix, n) != 0))
            return SH_FAIL(err, SH_E_INVALID,
                           "the tar file of the model has \"%s\", from which nothing is taken: "
                           "what is declared of inputs lies beside the model",
                           graph__clean(name, clean, sizeof(clean)));
    }
    return SH_OK;
}

int onnx_source_refuse_loose(const struct onnx_source *s, const char *weights, struct sh_err *err)
{
    const size_t n = s->prefix ? strlen(s->prefix) : 0;

    for (size_t i = 0; s->prefix && i < s->n_files; i++) {
        const char *name = s->files[i].name;
        const bool is_beside = strncmp(name, s->prefix, n) == 0;
        struct search file = {.name = is_beside ? name + n : name};
        char clean[128];

        if (!has_end(name, ".safetensors") || (is_beside && strcmp(file.name, weights) == 0))
            continue;
        if (is_beside)
            sh_external_each(s->model, s->model_bytes, is_it, &file);
        if (!file.found)
            return SH_FAIL(err, SH_E_INVALID,
                           "the tar file of the model has \"%s\", from which nothing is taken: no "
                           "tensor names it; weights by name lie beside the model in \"%s\"",
                           graph__clean(name, clean, sizeof(clean)), weights);
    }
    return s->prefix ? refuse_loose_declared(s, err) : SH_OK;
}

/* The number of the file of that name, which is in s->files then. */
static int find_file(struct onnx_source *s, const char *what, const char *location,
                     struct file **out, struct sh_err *err)
{
    const char *name = without_dot(location);
    char clean[128], *full = NULL;
    uint32_t i;
    int rc;

    *out = NULL;
    if (!graph__name_ok(name))
        return SH_FAIL(err, SH_E_INVALID,
                       "%s lies in \"%s\": the name of a file with data must have 1 to %u bytes of "
                       "UTF-8 without control characters",
                       what, graph__clean(location, clean, sizeof(clean)), GRAPH_MAX_NAME);
    if (!sh_external_inside(name))
        return SH_FAIL(err, SH_E_INVALID,
                       "%s lies in \"%s\": the name of a file with data must not leave the folder "
                       "of the model",
                       what, graph__clean(location, clean, sizeof(clean)));
    rc = sh_asprintf(err, &full, "%s%s", s->prefix ? s->prefix : "", name);
    if (rc)
        return rc;
    i = names_get(&s->names, full);
    if (i == NAMES_NONE) {
        rc = map_beside(s, what, full, err);
        i = (uint32_t)s->n_files - 1;
    }
    free(full);
    if (!rc)
        *out = &s->files[i];
    return rc;
}

static int give_bytes(struct onnx_source *s, const char *what, const char *location, int64_t offset,
                      int64_t length, bool look, const void **data, size_t *bytes,
                      struct sh_err *err)
{
    char clean[128];
    struct file *f;
    size_t *given;
    int rc = find_file(s, what, location, &f, err);

    if (rc)
        return rc;
    graph__clean(f->name, clean, sizeof(clean));
    if (offset < 0 || (uint64_t)offset > f->bytes ||
        (length >= 0 && (uint64_t)length > f->bytes - (size_t)offset))
        return SH_FAIL(err, SH_E_INVALID,
                       "%s begins at byte %lld of \"%s\" and has %lld bytes, but the file has %zu",
                       what, (long long)offset, clean, (long long)length, f->bytes);
    *bytes = length >= 0 ? (size_t)length : f->bytes - (size_t)offset;
    given = look ? &f->looked : &f->taken;
    if (*bytes > f->bytes - *given)
        return SH_FAIL(err, SH_E_INVALID, "%s: tensors overlap in \"%s\"", what, clean);
    *given += *bytes;
    *data = f->data ? f->data + offset : (const uint8_t *)"";
    return SH_OK;
}

int onnx_source_take(struct onnx_source *s, const char *what, const char *location, int64_t offset,
                     int64_t length, const void **data, size_t *bytes, struct sh_err *err)
{
    return give_bytes(s, what, location, offset, length, false, data, bytes, err);
}

int onnx_source_look(struct onnx_source *s, const char *what, const char *location, int64_t offset,
                     int64_t length, const void **data, size_t *bytes, struct sh_err *err)
{
    return give_bytes(s, what, location, offset, length, true, data, bytes, err);
}

void onnx_source_walk(struct onnx_source *s)
{
    for (size_t i = 0; i < s->n_files; i++)
        s->files[i].looked = 0;
}
