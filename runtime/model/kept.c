/* kept.c - see kept.h. */
#include "runtime/model/kept.h"

#include "common/mem.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "shuntkpt"
#define FORMAT 1u
#define PIECE ((size_t)4 << 20)
#define SMALL_PIECE ((size_t)256 << 10) /* stays in a cache */
#define MAX_NS 1e15                     /* of one layer: no device takes longer */

struct header {
    char magic[8];
    uint32_t format, n_layers, n_batches, tables_crc;
    uint64_t image_bytes;
    uint8_t key[SH_SHA256_BYTES];
    uint32_t image_crc, header_crc; /* header_crc: of all before it */
};
_Static_assert(sizeof(struct header) == 72, "the format of the file");

struct tables {
    char *bytes; /* OWNED */
    size_t n;
};

static size_t ns_bytes(const struct kept_about *a)
{
    return (size_t)a->n_batches * a->n_layers * sizeof(double);
}

static size_t tables_bytes(const struct kept_about *a)
{
    return a->n_layers * sizeof(uint64_t) + a->n_batches * sizeof(uint32_t) + ns_bytes(a);
}

uint64_t kept_image_at(const struct kept_about *a)
{
    return SH_ALIGN_UP(sizeof(struct header) + tables_bytes(a), (size_t)KEPT_ALIGN);
}

static struct header make_header(const struct kept_about *a, uint32_t tables_crc,
                                 uint32_t image_crc)
{
    struct header h = {.format = FORMAT,
                       .n_layers = a->n_layers,
                       .n_batches = a->n_batches,
                       .tables_crc = tables_crc,
                       .image_bytes = a->image_bytes,
                       .image_crc = image_crc};

    memcpy(h.magic, MAGIC, sizeof(h.magic));
    memcpy(h.key, a->key, sizeof(h.key));
    h.header_crc = sh_crc32c(0, &h, offsetof(struct header, header_crc));
    return h;
}

/* The tables but for the times. */
static size_t put_shape(const struct kept_about *a, char *out)
{
    size_t ends = a->n_layers * sizeof(uint64_t), batches = a->n_batches * sizeof(uint32_t);

    if (ends)
        memcpy(out, a->layer_ends, ends);
    if (batches)
        memcpy(out + ends, a->batches, batches);
    return ends + batches;
}

/* ------------------------------------------------------------------ writing */

static int put(int fd, const void *p, size_t n, off_t at, struct sh_err *err)
{
    const char *from = p;

    while (n > 0) {
        ssize_t done = pwrite(fd, from, SH_MIN(n, PIECE), at);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return SH_FAIL_ERRNO(err, errno == ENOSPC || errno == EDQUOT ? SH_E_DISKFULL : SH_E_IO,
                                 "could not keep what loading a model has made");
        from += done;
        at += done;
        n -= (size_t)done;
    }
    return SH_OK;
}

int kept_write(int fd, const struct kept_about *a, const void *image, const double *layer_ns,
               struct sh_err *err)
{
    size_t n = tables_bytes(a), shape;
    char *tables = malloc(n + 1);
    struct header h;
    int rc;

    if (!tables)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the tables of a model");
    shape = put_shape(a, tables);
    if (ns_bytes(a))
        memcpy(tables + shape, layer_ns, ns_bytes(a));
    h = make_header(a, sh_crc32c(0, tables, n), sh_crc32c(0, image, a->image_bytes));
    rc = put(fd, &h, sizeof(h), 0, err);
    if (!rc)
        rc = put(fd, tables, n, sizeof(h), err);
    if (!rc && ftruncate(fd, (off_t)kept_image_at(a)) < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not keep what loading a model has made");
    if (!rc)
        rc = put(fd, image, a->image_bytes, (off_t)kept_image_at(a), err);
    free(tables);
    return rc;
}

/* ------------------------------------------------------------------ reading */

static int misfit(struct sh_err *err, const char *why)
{
    return SH_FAIL(err, SH_E_INVALID, "what is kept of the model %s", why);
}

/* All n bytes, or it is not what it should be: the size of the file was looked at before. */
static int get(int fd, void *p, size_t n, off_t at, struct sh_err *err)
{
    char *to = p;

    while (n > 0) {
        ssize_t done = pread(fd, to, SH_MIN(n, PIECE), at);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return SH_FAIL_ERRNO(err, SH_E_IO, "could not read what is kept of a model");
        if (done == 0)
            return misfit(err, "ends too early");
        to += done;
        at += done;
        n -= (size_t)done;
    }
    return SH_OK;
}

static int read_header(int fd, const struct kept_about *a, struct header *h, struct sh_err *err)
{
    const uint64_t want = kept_image_at(a) + a->image_bytes;
    struct stat st;
    int rc;

    if (fstat(fd, &st) < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not look at what is kept of a model");
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != want)
        return misfit(err, "has not the size that it should have");
    rc = get(fd, h, sizeof(*h), 0, err);
    if (rc)
        return rc;
    if (memcmp(h->magic, MAGIC, sizeof(h->magic)) != 0 || h->format != FORMAT)
        return misfit(err, "is of another format");
    if (h->header_crc != sh_crc32c(0, h, offsetof(struct header, header_crc)))
        return misfit(err, "has a damaged header");
    if (memcmp(h->key, a->key, sizeof(h->key)) != 0 || h->n_layers != a->n_layers ||
        h->n_batches != a->n_batches || h->image_bytes != a->image_bytes)
        return misfit(err, "was made of something else");
    return SH_OK;
}

static int read_tables(int fd, const struct kept_about *a, const struct header *h, double *layer_ns,
                       struct sh_err *err)
{
    size_t n = tables_bytes(a), shape;
    char *is = malloc(n + 1), *want = malloc(n + 1);
    int rc = is && want ? get(fd, is, n, sizeof(*h), err)
                        : SH_FAIL(err, SH_E_NOMEM, "could not allocate the tables of a model");

    if (rc)
        goto out;
    shape = put_shape(a, want);
    if (h->tables_crc != sh_crc32c(0, is, n))
        rc = misfit(err, "has damaged tables");
    else if (memcmp(is, want, shape) != 0)
        rc = misfit(err, "was made of something else");
    if (rc || ns_bytes(a) == 0)
        goto out;
    memcpy(layer_ns, is + shape, ns_bytes(a));
    for (size_t i = 0; !rc && i < (size_t)a->n_batches * a->n_layers; i++)
        if (!isfinite(layer_ns[i]) || layer_ns[i] < 0 || layer_ns[i] > MAX_NS)
            rc = misfit(err, "holds an impossible time");
out:
    free(is);
    free(want);
    return rc;
}

/* Piece by piece: each is still in the cache when it is summed. */
static int read_image(int fd, const struct kept_about *a, const struct header *h, char *image,
                      struct sh_err *err)
{
    const size_t piece = image ? PIECE : SMALL_PIECE;
    char *own = image ? NULL : malloc(piece);
    uint32_t crc = 0;
    int rc =
        image || own ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a piece of a model");

    for (size_t done = 0, paused = 0; !rc && done < a->image_bytes;) {
        size_t n = SH_MIN(piece, (size_t)a->image_bytes - done);
        char *to = image ? image + done : own;

        rc = get(fd, to, n, (off_t)(kept_image_at(a) + done), err);
        if (rc)
            break;
        crc = sh_crc32c(crc, to, n);
        done += n;
        if (a->between && done - paused >= PIECE) {
            a->between(a->arg);
            paused = done;
        }
    }
    free(own);
    if (!rc && crc != h->image_crc)
        rc = misfit(err, "has a damaged image");
    return rc;
}

int kept_read(int fd, const struct kept_about *a, void *image, double *layer_ns, struct sh_err *err)
{
    struct header h;
    int rc = read_header(fd, a, &h, err);

    if (!rc)
        rc = read_tables(fd, a, &h, layer_ns, err);
    return rc ? rc : read_image(fd, a, &h, image, err);
}
