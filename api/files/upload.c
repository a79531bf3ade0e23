/* upload.c - see upload.h. artifact.c checks the contents. */
#include "api/files/upload.h"

#include "api/api.h"
#include "api/files/artifact.h"
#include "api/files/job_folder.h"
#include "api/files/part.h"
#include "api/handlers.h"
#include "api/infer/link.h"
#include "api/infer/serving.h"
#include "api/request/noun.h"
#include "api/request/pool.h"
#include "api/request/route.h"
#include "api/store/store.h"
#include "common/hash.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/sample.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES (1u << 20)
#define MAX_BATCH 1024 /* as in the table of versions */
#define PATH_OF_MODELS "/api/v1/models/"

struct upload {
    struct pool_task task; /* first member: at the end, for what is left of the file */
    struct api *api;
    int fd;
    char *path; /* OWNED: blobs/tmp/<random>, or a part */
    char *buffer;
    size_t n_buffered;
    uint64_t bytes, from; /* from: of an earlier connection */
    bool is_part;         /* what has come stays if the connection breaks ... */
    bool is_over;         /* ... but not what was refused, or is complete */
    struct sh_sha256 *sha;
    int64_t row_id, room_bytes, max_batch; /* as in struct store_slot */
    char buckets[SH_BUCKETS_TEXT];
    int64_t tenant_id; /* whose place it has; 0: an executor's */
    char if_match_text[24];
    const char *if_match; /* NULL or if_match_text */
};

static int take_upload_place(struct api *a, int64_t tenant_id, struct sh_err *err)
{
    struct uploads *l = &a->uploads;
    const size_t most = (size_t)a->conf->max_uploads;
    size_t n_own = 0;
    int rc = SH_OK;

    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < l->n; i++)
        n_own += l->owner[i] == tenant_id;
    if (tenant_id && n_own >= (size_t)a->conf->max_tenant_uploads)
        rc = SH_FAIL(
            err, SH_E_QUOTA,
            "the tenant has %zu uploads running, as many as max-tenant-uploads allows; try again "
            "when one is over",
            n_own);
    else if (l->n >= most)
        rc = SH_FAIL(err, SH_E_QUEUEFULL,
                     "%zu uploads are running, as many as max-uploads allows; try again later",
                     l->n);
    else
        rc = sh_grow(&l->owner, &l->cap, l->n + 1, sizeof(*l->owner), most, "uploads", err);
    if (!rc)
        l->owner[l->n++] = tenant_id;
    pthread_mutex_unlock(&l->lock);
    return rc;
}

static void leave_place(struct uploads *l, int64_t tenant_id)
{
    size_t i = 0;

    pthread_mutex_lock(&l->lock);
    while (l->owner[i] != tenant_id)
        i++;
    l->owner[i] = l->owner[--l->n];
    pthread_mutex_unlock(&l->lock);
}

static void remove_file(struct pool_task *t, struct db *db)
{
    struct upload *u = (struct upload *)t;

    (void)db;
    unlink(u->path); /* before its lock goes with the descriptor */
    close(u->fd);
    free(u->path);
    free(u);
}

/* Removing gigabytes frees as many blocks and pages: a pool thread does it. Where there is none any
 * more the process is about to end and nobody waits. */
void upload_close(struct upload *u)
{
    struct api *a;
    bool stays;

    if (!u)
        return;
    a = u->api;
    stays = u->is_part && !u->is_over && u->bytes > u->n_buffered;
    sh_sha256_free(u->sha);
    free(u->buffer);
    leave_place(&a->uploads, u->tenant_id);
    u->task.run = remove_file;
    u->task.owner = u->tenant_id;
    /* Once it is in its place, another upload may have a file of its name. */
    if (!stays && part_is_at(u->fd, u->path)) {
        if (pool_submit(a->bulk, &u->task, NULL))
            remove_file(&u->task, NULL);
        return;
    }
    if (u->fd >= 0)
        close(u->fd);
    free(u->path);
    free(u);
}

static bool is_model(const struct api_req *q) /* else a dataset */
{
    return strncmp(q->route->path, PATH_OF_MODELS, strlen(PATH_OF_MODELS)) == 0;
}

static int find_row(struct api_req *q, struct store_slot *slot, struct sh_err *err)
{
    bool model = is_model(q);
    const char *what = model ? "version" : "dataset", *name = q->params[model ? 1 : 0];
    int rc = SH_OK;

    *slot = (struct store_slot){0};
    if (model && noun_is_name(q->params[0]) && noun_is_number(name, INT32_MAX))
        rc = store_version_slot(q, q->params[0], name, slot, err);
    else if (!model && noun_is_name(name))
        rc = store_dataset_slot(q, name, slot, err);
    return !rc && slot->id == 0 ? noun_missing(what, name, err) : rc;
}

/* Files that were deleted stay for a while. With what is stored they may be twice what is allowed:
 * all may be replaced at once, and yet nobody fills the disk by doing so again and again. */
static int64_t slot_room(const struct store_slot *slot)
{
    return slot->max_bytes - slot->used_bytes + SH_MIN(slot->max_bytes - slot->linger_bytes, 0);
}

/* bytes: of the whole file; UINT64_MAX: not known yet. */
static int find_slot(struct api_req *q, struct store_slot *slot, uint64_t bytes, struct sh_err *err)
{
    const char *what = q->route->body == BODY_MODEL ? "version" : "dataset", *match;
    char buf[24];
    int rc;

    if (q->route->body == BODY_FILE)
        return job_folder_slot(q, slot, err);
    rc = find_row(q, slot, err);
    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    if (!rc && match)
        rc = noun_check_version(slot->row_version, match, what, err);
    if (!rc && !slot->open)
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "the %s is %s: its file cannot be replaced; create a new "
                     "one",
                     what, slot->state);
    if (!rc && bytes != UINT64_MAX && (int64_t)bytes <= slot->max_bytes - slot->used_bytes &&
        (int64_t)bytes > slot_room(slot))
        rc = SH_FAIL(err, SH_E_QUOTA,
                     "files of %" PRId64 " bytes that were deleted are still on the server's disk, "
                     "and with them there is no room for %" PRIu64 " more; they go some time after "
                     "they were deleted (blob-keep-s): try again later",
                     slot->linger_bytes, bytes);
    else if (!rc && bytes != UINT64_MAX && (int64_t)bytes > slot->max_bytes - slot->used_bytes)
        rc = SH_FAIL(err, SH_E_QUOTA,
                     "%" PRId64 " of %" PRId64 " bytes of storage are used, no room for %" PRIu64
                     " more; delete something or ask for a higher quota",
                     slot->used_bytes, slot->max_bytes, bytes);
    return rc;
}

static struct part_key slot_key(const struct api_req *q, const struct store_slot *slot)
{
    return (struct part_key){
        .tenant_id = q->tenant_id, .row_id = slot->id, .kind = is_model(q) ? 'm' : 'd'};
}

static int open_upload(struct upload *u, struct sh_err *err)
{
    uint8_t random[16];
    char name[33];
    int rc = sh_random(random, sizeof(random), err);

    if (rc)
        return rc;
    sh_hex(random, sizeof(random), name);
    rc = sh_asprintf(err, &u->path, "%s/blobs/tmp/%s", u->api->conf->state_dir, name);
    if (rc)
        return rc;
    u->fd = open(u->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (u->fd < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not create a file for the upload");
    return SH_OK;
}

/* Content-Range, if there is one. */
static int read_content_range(const struct api_req *q, uint64_t *from, uint64_t *total,
                              struct sh_err *err)
{
    uint64_t most = req_max_body(q);
    int rc;

    *from = 0;
    *total = q->has_length ? q->content_length : UINT64_MAX;
    if (!q->h.content_range)
        return SH_OK;
    if (q->route->body == BODY_FILE || !q->h.content_digest || !q->has_length)
        return SH_FAIL(
            err, SH_E_INVALID,
            "Content-Range is for the rest of the file of a version or dataset, with the "
            "Content-Digest of the whole and a Content-Length");
    rc = part_range(q->h.content_range, q->content_length, from, total, err);
    if (!rc && *total > most)
        rc = SH_FAIL(err, SH_E_TOOBIG,
                     "the file has %" PRIu64 " bytes, at most %" PRIu64 " are allowed here", *total,
                     most);
    return rc;
}

/* A file of its own if it is one that a broken connection does not cost, else of a random name. */
static int open_for(struct api_req *q, struct upload *u, const struct store_slot *slot,
                    struct sh_err *err)
{
    struct part_key k = slot_key(q, slot);
    const char *state_dir = u->api->conf->state_dir;
    struct part_survey others = {0};
    uint64_t have = 0;
    int rc;

    if (q->route->body == BODY_FILE || !part_digest(q->h.content_digest, k.digest))
        return open_upload(u, err);
    rc = part_survey(state_dir, &k, &others, u->from ? err : NULL);
    u->room_bytes -= others.bytes;
    if (!rc && !u->from && others.n >= PART_MAX)
        return open_upload(u, err);
    if (!rc)
        rc = part_open(state_dir, &k, u->from, &u->fd, &u->path, &have, u->from ? err : NULL);
    if (rc && !u->from)
        return open_upload(u, err);
    if (rc == SH_E_CONFLICT)
        q->reply.problem = json_pack("{s:I}", "bytes", (json_int_t)have);
    u->is_part = rc == SH_OK;
    u->bytes = u->from;
    return rc;
}

int upload_begin(struct api_req *q, struct sh_err *err)
{
    struct upload *u;
    struct store_slot slot;
    uint64_t from, total;
    int rc = read_content_range(q, &from, &total, err);

    if (!rc && q->tenant_id == 0 && (q->route->flags & ROUTE_TENANT))
        rc = store_tenant_id(q->db, q->tenant, &q->tenant_id, err);
    if (!rc)
        rc = find_slot(q, &slot, total, err);
    if (rc)
        return rc;
    rc = take_upload_place(q->api, q->tenant_id, err);
    if (rc)
        return rc;
    u = calloc(1, sizeof(*u));
    if (!u) {
        leave_place(&q->api->uploads, q->tenant_id);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an upload");
    }
    u->api = q->api;
    u->tenant_id = q->tenant_id;
    u->fd = -1;
    u->row_id = slot.id;
    u->max_batch = slot.max_batch;
    sh_strlcpy(u->buckets, slot.buckets, sizeof(u->buckets));
    u->from = from;
    rc = req_if_match(q, u->if_match_text, &u->if_match, err);
    u->room_bytes = slot_room(&slot);
    q->upload = u; /* the request's from now on, whatever fails */
    u->buffer = malloc(BUFFER_BYTES);
    if (rc)
        return rc;
    if (!u->buffer)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an upload");
    rc = sh_sha256_new(&u->sha, err);
    return rc ? rc : open_for(q, u, &slot, err);
}

int upload_flush(struct api_req *q, struct sh_err *err)
{
    struct upload *u = q->upload;
    int rc = sh_sha256_update(u->sha, u->buffer, u->n_buffered, err);

    if (!rc && !sh_write_all(u->fd, u->buffer, u->n_buffered))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write the upload to disk");
    sh_metric_add(M_shunt_uploads_bytes_total, SH_LABELS(q->tenant), (double)u->n_buffered);
    u->n_buffered = 0;
    u->is_over |= rc != SH_OK;
    return rc;
}

int upload_piece(struct api_req *q, const char *data, size_t n, struct sh_err *err)
{
    struct upload *u = q->upload;

    if (n > BUFFER_BYTES - u->n_buffered)
        return SH_FAIL(err, SH_E_BUG, "a piece of the body is larger than the buffer's room");
    memcpy(u->buffer + u->n_buffered, data, n);
    u->n_buffered += n;
    u->bytes += n;
    if ((int64_t)u->bytes > u->room_bytes) {
        u->is_over = true;
        return SH_FAIL(err, SH_E_QUOTA, "the tenant's storage quota is used up by this upload");
    }
    /* Pieces are at most as large as the connection's memory, 128 KiB. */
    return u->n_buffered > BUFFER_BYTES - (256u << 10) ? API_AGAIN : SH_OK;
}

/* Content-Digest: sha-256=:<base64>: (RFC 9530). Other algorithms in the list are passed over. */
static int check_digest(const char *header, const char *have, struct sh_err *err)
{
    char want[SH_SHA256_HEX];

    if (!header)
        return SH_OK;
    if (!part_digest(header, want))
        return SH_FAIL(err, SH_E_INVALID,
                       "Content-Digest must be of the form sha-256=:<base64 of 32 bytes>:");
    if (strcmp(want, have) != 0)
        return SH_FAIL(err, SH_E_INVALID,
                       "the body's SHA-256 is not the one in Content-Digest: it was damaged on "
                       "its way");
    return SH_OK;
}

/* What came by an earlier connection was not hashed by this one. */
static int final_digest(struct upload *u, char hex[static SH_SHA256_HEX], struct sh_err *err)
{
    uint8_t sha[SH_SHA256_BYTES];
    uint64_t bytes = 0;

    if (!u->from) {
        sh_sha256_final(u->sha, sha);
        sh_hex(sha, sizeof(sha), hex);
        return SH_OK;
    }
    if (lseek(u->fd, 0, SEEK_SET) < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not read the upload");
    return sh_sha256_fd(u->fd, hex, &bytes, err);
}

/* Everything has arrived: last bytes, digest. hex gets the file's SHA-256. */
static int complete_upload(struct api_req *q, char hex[static SH_SHA256_HEX], struct sh_err *err)
{
    struct upload *u = q->upload;
    int rc = upload_flush(q, err);

    u->is_over = true;
    if (rc)
        return rc;
    if (u->bytes == 0)
        return SH_FAIL(err, SH_E_INVALID, "the body is empty: send the file as the request's body");
    rc = final_digest(u, hex, err);
    if (!rc)
        rc = check_digest(q->h.content_digest, hex, err);
    if (!rc && fsync(u->fd))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write the upload to disk");
    return rc;
}

int upload_complete(struct api_req *q, char hex[static SH_SHA256_HEX], const char **path,
                    struct sh_err *err)
{
    *path = q->upload->path;
    return complete_upload(q, hex, err);
}

/* A model that was refused: the version says so too, and the reply lists the nodes. */
static int refuse_model(struct api_req *q, const struct artifact *a, struct sh_err *err)
{
    char reason[sizeof(err->msg)];
    struct sh_err ignored = {0};

    sh_strlcpy(reason, err->msg, sizeof(reason));
    if (a->nodes)
        q->reply.problem = json_pack("{s:O}", "nodes", a->nodes);
    /* Only a refusal is a fact about the file; a full disk or a time-out is not. */
    if (err->rc == SH_E_UNSUPPORTED || err->rc == SH_E_INVALID || err->rc == SH_E_TOOBIG)
        store_version_fail(q, q->upload->row_id, sh_rc_name(err->rc), reason, &ignored);
    return err->rc;
}

struct arrival {
    struct api_req *q;
    const struct artifact *a;
    const struct store_artifact *row;
    int (*write)(struct api_req *q, const struct store_artifact *row, json_t **out,
                 struct sh_err *err);
    bool *is_placed;
    json_t **out;
};

/* Uploads of a tenant that end at once take turns here: each sees what those before it have used.
 * The file leaves its part only when the database answers: else it stays, for a next try that has
 * to send no more than its last byte. */
static int arrive_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct arrival *x = arg;
    struct api_req *q = x->q;
    struct upload *u = q->upload;
    struct store_slot slot;
    int rc = store_quota_lock(db, q->tenant_id, err);

    json_decref(*x->out); /* this may run again */
    *x->out = NULL;
    if (!rc)
        rc = find_slot(q, &slot, u->bytes, err);
    if (!rc && !*x->is_placed)
        rc = artifact_place(q->api->conf, u->path, x->a, err);
    *x->is_placed |= rc == SH_OK;
    return rc ? rc : x->write(q, x->row, x->out, err);
}

/* *out stays NULL if the row has another file meanwhile. */
static int arrive(struct api_req *q, const struct artifact *a, const struct store_artifact *row,
                  int (*write)(struct api_req *, const struct store_artifact *, json_t **,
                               struct sh_err *),
                  json_t **out, struct sh_err *err)
{
    bool is_placed = false;
    struct arrival x = {
        .q = q, .a = a, .row = row, .write = write, .is_placed = &is_placed, .out = out};
    int rc = db_tx(q->db, "upload", arrive_tx, &x, err);

    q->upload->is_over = !sh_rc_retry(rc); /* 0: the part goes, which is in its place */
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

/* The file's own batch counts, unless somebody asked for another one. */
static int check_upload_batch(const struct upload *u, const struct artifact *a, struct sh_err *err)
{
    if (a->fixed_batch > MAX_BATCH)
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "the model has a fixed batch of %" PRId64 ", and at most %d can run at "
                       "once; export it with a dynamic first axis",
                       a->fixed_batch, MAX_BATCH);
    if (a->fixed_batch && u->max_batch && a->fixed_batch != u->max_batch)
        return SH_FAIL(err, SH_E_INVALID,
                       "the model has a fixed batch of %" PRId64 ", and a max_batch of %" PRId64
                       " was asked for: leave max_batch (--max-batch) out, or export the model "
                       "with a dynamic first axis",
                       a->fixed_batch, u->max_batch);
    if (a->is_solo && !a->fixed_batch && u->max_batch > SH_SAMPLE_MAX_SOLO)
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "samples of the model may affect each other, so each request runs by "
                       "itself, with %d samples at most: a max_batch (--max-batch) of %" PRId64
                       " is too large",
                       SH_SAMPLE_MAX_SOLO, u->max_batch);
    return SH_OK;
}

int versions_upload(struct api_req *q, struct sh_err *err)
{
    struct upload *u = q->upload;
    struct artifact a = {0};
    char hex[SH_SHA256_HEX];
    json_t *j = NULL;
    int rc = complete_upload(q, hex, err);

    if (!rc) {
        rc = artifact_import_model(q->api->conf, u->path, hex, u->buckets, &a, err);
        if (!rc)
            rc = check_upload_batch(u, &a, err);
        if (rc)
            rc = refuse_model(q, &a, err);
    }
    if (!rc) {
        struct store_artifact row = {.id = u->row_id,
                                     .digest = hex,
                                     .path = a.path,
                                     .bytes = u->bytes,
                                     .inputs = a.inputs,
                                     .outputs = a.outputs,
                                     .meta = a.meta,
                                     .max_batch = a.fixed_batch,
                                     .if_match = u->if_match};

        rc = arrive(q, &a, &row, store_version_register, &j, err);
        if (!rc && !j)
            rc = SH_FAIL(err, SH_E_CONFLICT, "another request has uploaded a file for the version");
    }
    artifact_fini(&a);
    if (rc)
        return rc;
    link_hint(q->api->link, "models");
    return serving_reply(q, j, NULL, err);
}

int datasets_upload(struct api_req *q, struct sh_err *err)
{
    struct upload *u = q->upload;
    struct artifact a = {0};
    char hex[SH_SHA256_HEX];
    json_t *j = NULL;
    int rc = complete_upload(q, hex, err);

    if (!rc)
        rc = artifact_check_dataset(u->path, hex, &a, err);
    if (!rc) {
        struct store_artifact row = {.id = u->row_id,
                                     .digest = hex,
                                     .path = a.path,
                                     .bytes = u->bytes,
                                     .inputs = a.inputs,
                                     .n_samples = a.n_samples,
                                     .if_match = u->if_match};

        rc = arrive(q, &a, &row, store_dataset_ready, &j, err);
        if (!rc && !j)
            rc = SH_FAIL(err, SH_E_CONFLICT, "another request has uploaded a file for the dataset");
    }
    artifact_fini(&a);
    return rc ? rc : req_reply(q, j, NULL, err);
}

/* GET .../artifact/parts/{digest}: how much of it is here. */
int uploads_part(struct api_req *q, struct sh_err *err)
{
    bool model = is_model(q);
    const char *digest = q->params[model ? 2 : 1];
    struct store_slot slot;
    struct part_key k;
    uint8_t sha[SH_SHA256_BYTES];
    int64_t bytes = 0;
    int rc = find_row(q, &slot, err);

    if (rc)
        return rc;
    k = slot_key(q, &slot);
    if (strlen(digest) != SH_SHA256_HEX - 1 || sh_unhex(digest, sha, sizeof(sha), NULL))
        return noun_missing("part", digest, err);
    sh_hex(sha, sizeof(sha), k.digest);
    rc = part_bytes(q->api->conf->state_dir, &k, &bytes, err);
    return rc ? rc
              : req_reply(q,
                          json_pack("{s:s, s:I, s:i}", "digest", k.digest, "bytes",
                                    (json_int_t)bytes, "max_age_s", PART_MAX_AGE_S),
                          NULL, err);
}

int upload_sweep(const char *state_dir, struct sh_err *err)
{
    char *tmp = NULL;
    int rc = sh_asprintf(err, &tmp, "%s/blobs/tmp", state_dir);

    if (!rc)
        rc = artifact_remove_old(tmp, PART_MAX_AGE_S, err); /* other APIs may be using it */
    free(tmp);
    return rc;
}

static int make_upload_dir(const char *state_dir, const char *below, struct sh_err *err)
{
    char *path = NULL;
    int rc = sh_asprintf(err, &path, "%s%s", state_dir, below);

    if (!rc && mkdir(path, 0755) && errno != EEXIST)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make the folder \"%s\"", path);
    free(path);
    return rc;
}

int upload_prepare_dirs(const char *state_dir, struct sh_err *err)
{
    static const char *const BELOW[] = {
        "", "/blobs", "/blobs/packages", "/blobs/datasets", "/blobs/tmp", "/jobs"};
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < SH_ARRAY_LEN(BELOW); i++)
        rc = make_upload_dir(state_dir, BELOW[i], err);
    return rc ? rc : upload_sweep(state_dir, err);
}
