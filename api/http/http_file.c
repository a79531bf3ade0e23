/* http_file.c - a file as reply: sent piece by piece, read on a pool thread.
 *
 * The library asks for bytes on an HTTP thread, which must not wait for a disk. If none are ready
 * the connection is suspended, as for a handler, until a pool thread has read the next piece.
 */
#include "api/api.h"
#include "api/http/http_int.h"
#include "common/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE ((size_t)128 << 10)
#define BLOCK ((size_t)32 << 10) /* what the library sends at once */

struct http_file {         /* lives as long as the response */
    struct pool_task task; /* first member */
    struct http_req *r;    /* BORROWED: nothing is asked for when it has ended */
    int fd;                /* OWNED */
    uint64_t off;          /* in the file, of the response's first byte */
    uint64_t at;           /* in the response, of the piece */
    size_t len;            /* of the piece; 0: none was read yet */
    uint64_t bytes;        /* of the response */
    bool is_broken;
    char piece[PIECE];
};

static void read_reply_piece(struct pool_task *t, struct db *db)
{
    struct http_file *f = (struct http_file *)t;
    size_t want = (size_t)(f->bytes - f->at < PIECE ? f->bytes - f->at : PIECE);
    struct sh_err err = {0};
    ssize_t n;

    (void)db;
    do {
        n = pread(f->fd, f->piece, want, (off_t)(f->off + f->at));
    } while (n < 0 && errno == EINTR);
    f->len = n > 0 ? (size_t)n : 0;
    f->is_broken = n <= 0;
    if (n < 0)
        SH_FAIL_ERRNO(&err, SH_E_IO, "could not read a file that is being sent");
    else if (n == 0)
        SH_FAIL(&err, SH_E_IO, "a file that is being sent was cut");
    if (err.rc)
        sh_log_err(SH_LOG_ERROR, "http.file", &err);
    req_wake(&f->r->q); /* f must not be touched any more */
}

static ssize_t on_bytes(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct http_file *f = cls;

    if (f->is_broken)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (f->len > 0 && pos >= f->at && pos < f->at + f->len) {
        size_t skip = (size_t)(pos - f->at), n = f->len - skip < max ? f->len - skip : max;

        memcpy(buf, f->piece + skip, n);
        return (ssize_t)n;
    }
    f->at = pos;
    f->len = 0;
    f->task.run = read_reply_piece;
    f->task.owner = f->r->q.who.tenant_id;
    atomic_store(&f->r->wake, WAKE_NONE);
    if (pool_submit(f->r->http->api->ctl, &f->task, NULL))
        return MHD_CONTENT_READER_END_WITH_ERROR; /* overloaded: the client may go on from here */
    http_fall_asleep(f->r);
    return 0;
}

static void on_free(void *cls)
{
    struct http_file *f = cls;

    close(f->fd);
    free(f);
}

int http_file_response(struct http_req *r, struct MHD_Response **out)
{
    struct api_file *a = &r->q.reply.file;
    struct http_file *f = calloc(1, sizeof(*f));

    *out = NULL;
    if (!f)
        return SH_E_NOMEM;
    f->r = r;
    f->off = a->from;
    f->bytes = r->reply_bytes = a->bytes;
    f->fd = a->fd;
    *out = MHD_create_response_from_callback(a->bytes, BLOCK, on_bytes, f, on_free);
    if (!*out) {
        free(f);
        return SH_E_NOMEM;
    }
    a->is_set = false; /* moved into the response */
    MHD_add_response_header(*out, "Content-Type", a->type ? a->type : "application/octet-stream");
    if (a->disposition[0])
        MHD_add_response_header(*out, "Content-Disposition", a->disposition);
    return SH_OK;
}
