/* kept.c - see kept.h. */
#include "runtime/model/kept.h"

#include "common/mem.h"
#include "runtime/pack/pack_block.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "shuntkpt"
#define FORMAT 3u
#define SMALL_PIECE ((size_t)256 << 10) /* stays in a cache */
#define MAX_NS 1e15                     /* of one layer: no device takes longer */

struct header {
    char magic[8];
    uint32_t format, n_layers, n_batches, tables_crc;
    uint64_t image_bytes, stored_bytes;
    uint8_t key[SH_SHA256_BYTES];
    uint32_t piece_bytes, packed, reserved, header_crc; /* header_crc: of all before it */
};
_Static_assert(sizeof(struct header) == 88, "the format of the file");

struct tables {
    char *bytes; /* OWNED */
    size_t n;
};

static size_t ns_bytes(const struct kept_about *a)
{
    return (size_t)a->n_batches * a->n_layers * sizeof(double);
}

uint64_t kept_stored_bytes(const struct kept_about *a)
{
    return a->link_ends && a->n_layers ? a->link_ends[a->n_layers - 1] : a->image_bytes;
}

static uint32_t n_kept_pieces(const struct kept_about *a)
{
    return (uint32_t)((kept_stored_bytes(a) + KEPT_PIECE - 1) / KEPT_PIECE);
}

static size_t tables_bytes(const struct kept_about *a)
{
    return a->n_layers * sizeof(uint64_t) * (a->link_ends ? 2 : 1) +
           a->n_batches * sizeof(uint32_t) + ns_bytes(a) + n_kept_pieces(a) * sizeof(uint32_t);
}

static size_t piece_bytes(uint64_t image_bytes, uint32_t piece)
{
    return (size_t)SH_MIN((uint64_t)KEPT_PIECE, image_bytes - (uint64_t)piece * KEPT_PIECE);
}

uint64_t kept_image_at(const struct kept_about *a)
{
    return SH_ALIGN_UP(sizeof(struct header) + tables_bytes(a), (size_t)KEPT_ALIGN);
}

static struct header make_kept_header(const struct kept_about *a, uint32_t tables_crc)
{
    struct header h = {.format = FORMAT,
                       .n_layers = a->n_layers,
                       .n_batches = a->n_batches,
                       .tables_crc = tables_crc,
                       .image_bytes = a->image_bytes,
                       .stored_bytes = kept_stored_bytes(a),
                       .packed = a->link_ends != NULL,
                       .piece_bytes = (uint32_t)KEPT_PIECE};

    memcpy(h.magic, MAGIC, sizeof(h.magic));
    memcpy(h.key, a->key, sizeof(h.key));
    h.header_crc = sh_crc32c(0, &h, offsetof(struct header, header_crc));
    return h;
}

/* The tables but for the times and checksums. */
static size_t put_shape(const struct kept_about *a, char *out)
{
    size_t ends = a->n_layers * sizeof(uint64_t), batches = a->n_batches * sizeof(uint32_t);

    if (ends)
        memcpy(out, a->layer_ends, ends);
    if (ends && a->link_ends)
        memcpy(out + ends, a->link_ends, ends);
    ends *= a->link_ends ? 2 : 1;
    if (batches)
        memcpy(out + ends, a->batches, batches);
    return ends + batches;
}

/* ------------------------------------------------------------------ writing */

static int write_bytes_at(int fd, const void *p, size_t n, off_t at, struct sh_err *err)
{
    const char *from = p;

    while (n > 0) {
        ssize_t done = pwrite(fd, from, SH_MIN(n, KEPT_PIECE), at);

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
    for (uint32_t i = 0; i < n_kept_pieces(a); i++) {
        uint32_t crc = sh_crc32c(0, (const char *)image + (size_t)i * KEPT_PIECE,
                                 piece_bytes(kept_stored_bytes(a), i));

        memcpy(tables + shape + ns_bytes(a) + i * sizeof(crc), &crc, sizeof(crc));
    }
    h = make_kept_header(a, sh_crc32c(0, tables, n));
    rc = write_bytes_at(fd, &h, sizeof(h), 0, err);
    if (!rc)
        rc = write_bytes_at(fd, tables, n, sizeof(h), err);
    if (!rc && ftruncate(fd, (off_t)kept_image_at(a)) < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not keep what loading a model has made");
    if (!rc)
        rc = write_bytes_at(fd, image, kept_stored_bytes(a), (off_t)kept_image_at(a), err);
    free(tables);
    return rc;
}

int kept_put(int fd, const void *file, size_t bytes, struct sh_err *err)
{
    return write_bytes_at(fd, file, bytes, 0, err);
}

/* ------------------------------------------------------------------ reading */

static int misfit(struct sh_err *err, const char *why)
{
    return SH_FAIL(err, SH_E_INVALID, "what is kept of the model %s", why);
}

/* All n bytes, or it is not what it should be: the size of the file was looked at before. */
static int read_bytes_at(int fd, void *p, size_t n, off_t at, struct sh_err *err)
{
    char *to = p;

    while (n > 0) {
        ssize_t done = pread(fd, to, SH_MIN(n, KEPT_PIECE), at);

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

static int file_bytes(int fd, uint64_t *out, struct sh_err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not look at what is kept of a model");
    *out = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    return SH_OK;
}

/* But for how the image is stored. */
static int read_kept_start(int fd, const struct kept_about *a, struct header *h, struct sh_err *err)
{
    int rc = read_bytes_at(fd, h, sizeof(*h), 0, err);

    if (rc)
        return rc;
    if (memcmp(h->magic, MAGIC, sizeof(h->magic)) != 0 || h->format != FORMAT)
        return misfit(err, "is of another format");
    if (h->header_crc != sh_crc32c(0, h, offsetof(struct header, header_crc)))
        return misfit(err, "has a damaged header");
    if (memcmp(h->key, a->key, sizeof(h->key)) != 0 || h->n_layers != a->n_layers ||
        h->n_batches != a->n_batches || h->image_bytes != a->image_bytes ||
        h->piece_bytes != KEPT_PIECE)
        return misfit(err, "was made of something else");
    return SH_OK;
}

static int read_kept_header(int fd, const struct kept_about *a, struct header *h,
                            struct sh_err *err)
{
    uint64_t size = 0;
    int rc = file_bytes(fd, &size, err);

    if (!rc && size != kept_image_at(a) + kept_stored_bytes(a))
        rc = misfit(err, "has not the size that it should have");
    if (!rc)
        rc = read_kept_start(fd, a, h, err);
    if (!rc && (h->stored_bytes != kept_stored_bytes(a) || h->packed != (a->link_ends != NULL)))
        rc = misfit(err, "was made of something else");
    return rc;
}

int kept_look(int fd, struct kept_about *a, uint64_t *link_ends, struct sh_err *err)
{
    const size_t ends = a->n_layers * sizeof(*link_ends);
    struct header h;
    uint64_t size = 0, last = 0;
    int rc = file_bytes(fd, &size, err);

    if (!rc)
        rc = read_kept_start(fd, a, &h, err);
    a->link_ends = NULL;
    if (rc || !h.packed)
        return rc;
    rc = read_bytes_at(fd, link_ends, ends, (off_t)(sizeof(h) + ends), err);
    for (uint32_t i = 0; !rc && i < a->n_layers; last = link_ends[i++])
        if (link_ends[i] < last || link_ends[i] % PACK_ALIGN)
            rc = misfit(err, "has damaged tables");
    if (!rc && (a->n_layers == 0 || last != h.stored_bytes || last > size))
        rc = misfit(err, "has damaged tables");
    a->link_ends = rc ? NULL : link_ends;
    return rc;
}

static int check_times(const double *ns, size_t n, struct sh_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(ns[i]) || ns[i] < 0 || ns[i] > MAX_NS)
            return misfit(err, "holds an impossible time");
    return SH_OK;
}

/* layer_ns NULL: nobody needs the times. */
static int read_kept_tables(int fd, const struct kept_about *a, const struct header *h,
                            double *layer_ns, uint32_t *crc, struct sh_err *err)
{
    size_t n = tables_bytes(a), shape;
    char *is = malloc(n + 1), *want = malloc(n + 1);
    int rc = is && want ? read_bytes_at(fd, is, n, sizeof(*h), err)
                        : SH_FAIL(err, SH_E_NOMEM, "could not allocate the tables of a model");

    if (rc)
        goto out;
    shape = put_shape(a, want);
    if (h->tables_crc != sh_crc32c(0, is, n))
        rc = misfit(err, "has damaged tables");
    else if (memcmp(is, want, shape) != 0)
        rc = misfit(err, "was made of something else");
    if (rc)
        goto out;
    if (n_kept_pieces(a))
        memcpy(crc, is + shape + ns_bytes(a), n_kept_pieces(a) * sizeof(*crc));
    if (!layer_ns || ns_bytes(a) == 0)
        goto out;
    memcpy(layer_ns, is + shape, ns_bytes(a));
    rc = check_times(layer_ns, (size_t)a->n_batches * a->n_layers, err);
out:
    free(is);
    free(want);
    return rc;
}

static int open_pieces(int fd, const struct kept_about *a, double *layer_ns,
                       struct kept_pieces *out, struct sh_err *err)
{
    struct header h;
    int rc = read_kept_header(fd, a, &h, err);

    *out = (struct kept_pieces){
        .fd = fd, .at = kept_image_at(a), .bytes = kept_stored_bytes(a), .n = n_kept_pieces(a)};
    if (rc)
        return rc;
    out->crc = calloc((size_t)out->n + 1, sizeof(*out->crc));
    if (!out->crc)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the tables of a model");
    rc = read_kept_tables(fd, a, &h, layer_ns, out->crc, err);
    if (rc) {
        free(out->crc);
        out->crc = NULL;
    }
    return rc;
}

int kept_open_pieces(int fd, const struct kept_about *a, struct kept_pieces *out,
                     struct sh_err *err)
{
    return open_pieces(fd, a, NULL, out, err);
}

/* In parts that are still in the cache when they are summed. */
int kept_read_piece(const struct kept_pieces *p, uint32_t piece, void *image, struct sh_err *err)
{
    const uint64_t from = (uint64_t)piece * KEPT_PIECE;
    const size_t n = piece_bytes(p->bytes, piece);
    char *own = image ? NULL : malloc(SMALL_PIECE);
    uint32_t crc = 0;
    int rc =
        image || own ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a piece of a model");

    for (size_t done = 0; !rc && done < n; done += SMALL_PIECE) {
        const size_t part = SH_MIN(SMALL_PIECE, n - done);
        char *to = image ? (char *)image + from + done : own;

        rc = read_bytes_at(p->fd, to, part, (off_t)(p->at + from + done), err);
        if (!rc)
            crc = sh_crc32c(crc, to, part);
    }
    free(own);
    if (!rc && crc != p->crc[piece])
        rc = misfit(err, "has a damaged image");
    return rc;
}

int kept_read(int fd, const struct kept_about *a, void *image, double *layer_ns, struct sh_err *err)
{
    struct kept_pieces p;
    int rc = open_pieces(fd, a, layer_ns, &p, err);

    for (uint32_t i = 0; !rc && i < p.n; i++) {
        rc = kept_read_piece(&p, i, image, err);
        if (a->between)
            a->between(a->arg);
    }
    free(p.crc);
    return rc;
}
