/* cargo.c - see cargo.h. */
#include "cli/data/cargo.h"

#include "cli/files/user_file.h"
#include "common/external.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/ustar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILES 4096

struct names { /* of what a model names, each once */
    char **name;
    size_t n, cap;
    struct sh_err *err;
    int rc;
};

static bool add_location(const char *location, size_t n, void *arg)
{
    struct names *l = arg;
    char *name;

    for (size_t i = l->n; i-- > 0;) /* most tensors lie where the one before does */
        if (strlen(l->name[i]) == n && memcmp(l->name[i], location, n) == 0)
            return true;
    l->rc = sh_grow(&l->name, &l->cap, l->n + 1, sizeof(*l->name), MAX_FILES, "files of a model",
                    l->err);
    if (l->rc)
        return false;
    name = strndup(location, n);
    if (!name) {
        l->rc = SH_FAIL(l->err, SH_E_NOMEM, "could not allocate a name");
        return false;
    }
    l->name[l->n++] = name;
    if (!sh_external_inside(strncmp(name, "./", 2) == 0 ? name + 2 : name))
        l->rc =
            SH_FAIL(l->err, SH_E_INVALID,
                    "the model names \"%s\" for its data, which is outside of its folder", name);
    return !l->rc;
}

static int find_locations(const char *file, struct names *l)
{
    enum sh_file_kind kind;
    int64_t bytes = 0;
    int fd = -1;
    int rc = user_file_kind(file, &kind, l->err);
    void *map;

    if (rc || kind != SH_FILE_ONNX)
        return rc;
    rc = user_file_open(file, &fd, &bytes, l->err);
    map = rc ? MAP_FAILED : mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (!rc && map == MAP_FAILED)
        rc = SH_FAIL_ERRNO(l->err, SH_E_IO, "could not read \"%s\": %m", file);
    if (!rc) {
        sh_external_each(map, (size_t)bytes, add_location, l); /* if damaged: the server says so */
        rc = l->rc;
        munmap(map, (size_t)bytes);
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

/* TAKES path and text, whatever it returns. */
static int add_cargo_part(struct cargo *c, char *path, char *text, int64_t bytes,
                          struct sh_err *err)
{
    int rc = sh_grow(&c->parts, &c->cap, c->n + 1, sizeof(*c->parts), 3 * (MAX_FILES + 2),
                     "parts of an upload", err);

    if (rc) {
        free(path);
        free(text);
        return rc;
    }
    c->parts[c->n++] = (struct cargo_part){path, text, bytes};
    c->bytes += bytes;
    return SH_OK;
}

static int cargo_add_file(struct cargo *c, const char *path, int64_t *bytes, struct sh_err *err)
{
    char *copy = NULL;
    int fd = -1, rc = user_file_open(path, &fd, bytes, err);

    if (fd >= 0)
        close(fd);
    if (!rc)
        rc = sh_strdup(path, &copy, err);
    return rc ? rc : add_cargo_part(c, copy, NULL, *bytes, err);
}

static int add_zeros(struct cargo *c, int64_t bytes, struct sh_err *err)
{
    char *text = bytes ? calloc(1, (size_t)bytes) : NULL;

    if (bytes && !text)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an upload");
    return bytes ? add_cargo_part(c, NULL, text, bytes, err) : SH_OK;
}

/* A number as protocol buffers have it. */
static size_t put_varint(uint8_t *p, size_t n)
{
    size_t len = 0;

    for (; n > 127; n >>= 7)
        p[len++] = (uint8_t)(n & 127) | 128;
    p[len++] = (uint8_t)n;
    return len;
}

#define TAG(field) (uint8_t)((field) << 3 | 2) /* of what has a length */
#define METADATA_PROPS 14                      /* of ModelProto */

/* An entry of the model's metadata: a message that continues behind its end is the same as one
 * message. text NULL: there is none. */
static int add_said(struct cargo *c, const char *key, const char *text, int64_t *bytes,
                    struct sh_err *err)
{
    const size_t n_key = strlen(key), n = text ? strlen(text) : 0;
    uint8_t *p = text ? malloc(n_key + n + 40) : NULL, lengths[2][10];
    const size_t l_key = put_varint(lengths[0], n_key), l_text = put_varint(lengths[1], n);
    size_t at = 0;

    if (!text)
        return SH_OK;
    if (!p)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an upload");
    p[at++] = TAG(METADATA_PROPS);
    at += put_varint(p + at, 1 + l_key + n_key + 1 + l_text + n);
    p[at++] = TAG(1);
    memcpy(p + at, lengths[0], l_key);
    memcpy(p + at + l_key, key, n_key);
    at += l_key + n_key;
    p[at++] = TAG(2);
    memcpy(p + at, lengths[1], l_text);
    memcpy(p + at + l_text, text, n);
    at += l_text + n;
    *bytes += (int64_t)at;
    return add_cargo_part(c, NULL, (char *)p, (int64_t)at, err);
}

/* The model's file with what is said of its constants and inputs. */
static int add_model(struct cargo *c, const char *file, const struct cargo_with *with,
                     int64_t *bytes, struct sh_err *err)
{
    int rc = cargo_add_file(c, file, bytes, err);

    if (!rc)
        rc = add_said(c, SH_EXTERNAL_BUFFERS, with ? with->buffers : NULL, bytes, err);
    if (!rc)
        rc = add_said(c, SH_EXTERNAL_PARAMETERS, with ? with->parameters : NULL, bytes, err);
    return rc ? rc
              : add_said(c, SH_EXTERNAL_PREPROCESS, with ? with->preprocess : NULL, bytes, err);
}

/* As `name` in the tar file. with: it is the model. */
static int pack_cargo(struct cargo *c, const char *path, const char *name,
                      const struct cargo_with *with, struct sh_err *err)
{
    char *head = calloc(1, USTAR_BLOCK);
    int64_t bytes = 0;
    size_t at = c->n;
    int rc = head ? add_cargo_part(c, NULL, head, USTAR_BLOCK, err)
                  : SH_FAIL(err, SH_E_NOMEM, "could not allocate an upload");

    if (!rc)
        rc = add_model(c, path, with, &bytes, err);
    if (!rc)
        rc = ustar_write(name, (uint64_t)bytes, 0, c->parts[at].text, err);
    return rc ? rc : add_zeros(c, (int64_t)ustar_padded((uint64_t)bytes) - bytes, err);
}

static int open_beside(int folder, const char *name)
{
    return sh_external_open(folder, strncmp(name, "./", 2) == 0 ? name + 2 : name);
}

static bool is_missing(int folder, const char *name)
{
    int fd = open_beside(folder, name);

    if (fd >= 0)
        close(fd);
    return fd < 0 && errno == ENOENT;
}

/* A file that the model names, which a stranger may have written: through a link it could be any
 * file of who pushes it. */
static int check_beside(int folder, const char *file, const char *name, struct sh_err *err)
{
    int fd = open_beside(folder, name);
    const int why = errno;

    if (fd >= 0) {
        close(fd);
        return SH_OK;
    }
    if (why == ELOOP || why == ENOTDIR)
        return SH_FAIL(
            err, SH_E_INVALID,
            "the weights of \"%s\" are in \"%s\", which is a link, or behind one; put the "
            "file itself beside the model",
            file, name);
    errno = why;
    return SH_FAIL_ERRNO(err, SH_E_INVALID,
                         "the weights of \"%s\" are in \"%s\", which is not there: %m", file, name);
}

static int open_file_folder(const char *file, size_t n, int *out, struct sh_err *err)
{
    char *path = n ? strndup(file, n) : strdup(".");

    *out = path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(path);
    return *out >= 0 ? SH_OK
                     : SH_FAIL_ERRNO(err, SH_E_IO, "could not open the folder of \"%s\": %m", file);
}

static int pack_all(struct cargo *c, const char *file, const struct cargo_with *with,
                    const struct names *l, struct sh_err *err)
{
    const char *weights = with ? with->weights : NULL;
    const char *slash = strrchr(file, '/');
    const size_t n = slash ? (size_t)(slash + 1 - file) : 0;
    int folder = -1, rc = open_file_folder(file, n, &folder, err);

    if (!rc)
        rc = pack_cargo(c, file, "model.onnx", with, err);
    if (!rc && weights)
        rc = pack_cargo(c, weights, SH_EXTERNAL_WEIGHTS, NULL, err);
    for (size_t i = 0; i < l->n && !rc; i++) {
        char *path = NULL;

        if (weights && is_missing(folder, l->name[i]))
            continue;
        rc = check_beside(folder, file, l->name[i], err);
        if (!rc)
            rc = sh_asprintf(err, &path, "%.*s%s", (int)n, file, l->name[i]);
        if (!rc)
            rc = pack_cargo(c, path, l->name[i], NULL, err);
        free(path);
    }
    if (folder >= 0)
        close(folder);
    return rc ? rc : add_zeros(c, 2 * USTAR_BLOCK, err);
}

int cargo_file(const char *file, struct cargo *out, struct sh_err *err)
{
    int64_t bytes;

    *out = (struct cargo){.fd = -1};
    return cargo_add_file(out, file, &bytes, err);
}

int cargo_open(const char *file, const struct cargo_with *with, struct cargo *out,
               struct sh_err *err)
{
    struct names l = {.err = err};
    int64_t bytes;
    int rc;

    *out = (struct cargo){.fd = -1};
    rc = find_locations(file, &l);
    if (!rc)
        rc = l.n || (with && with->weights) ? pack_all(out, file, with, &l, err)
                                            : add_model(out, file, with, &bytes, err);
    for (size_t i = 0; i < l.n; i++)
        free(l.name[i]);
    free(l.name);
    return rc;
}

void cargo_fini(struct cargo *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->parts[i].path);
        free(c->parts[i].text);
    }
    free(c->parts);
    if (c->fd >= 0)
        close(c->fd);
    *c = (struct cargo){.fd = -1};
}

/* One file is open at a time: a model may have more than a process may open. */
static bool open_cargo_part(struct cargo *c, size_t i)
{
    struct stat st;

    if (c->fd >= 0 && c->open == i)
        return true;
    if (c->fd >= 0)
        close(c->fd);
    c->open = i;
    c->fd = open(c->parts[i].path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (c->fd < 0)
        return false;
    if (fstat(c->fd, &st) == 0 && st.st_size == c->parts[i].bytes)
        return true;
    errno = EIO;
    return false;
}

ssize_t cargo_read(struct cargo *c, int64_t at, void *out, size_t n)
{
    const struct cargo_part *p;
    ssize_t got;
    size_t i = 0;

    while (i < c->n && at >= c->parts[i].bytes)
        at -= c->parts[i++].bytes;
    if (i == c->n)
        return 0;
    p = &c->parts[i];
    n = SH_MIN(n, (size_t)(p->bytes - at));
    if (p->text) {
        memcpy(out, p->text + at, n);
        return (ssize_t)n;
    }
    if (!open_cargo_part(c, i))
        return -1;
    got = sh_pread_all(c->fd, out, n, (uint64_t)at);
    if (got == 0)
        errno = EIO; /* it became shorter */
    return got > 0 ? got : -1;
}
