/* transfer_world.h - an API that breaks off, stalls, damages and refuses, in this process, and as
 * much of an executor as transfer.c, blobs.c and push.c look at.
 */
#ifndef SH_TESTS_UNIT_TRANSFER_WORLD_H
#define SH_TESTS_UNIT_TRANSFER_WORLD_H

#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"
#include "executor/files/files.h"
#include "executor/files/transfer.h"
#include "sh_test.h"

#include <ftw.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>

#define N_FILES 4

struct world_file { /* what GET and HEAD answer for a path that ends so */
    const char *name, *data;
    size_t bytes;
    char etag[72];
};

struct world {
    struct MHD_Daemon *server;
    struct world_file files[N_FILES];
    size_t n_files;
    /* Of the next so many GETs: break off after cut_at bytes, answer with a wrong byte. */
    int n_cuts, n_damaged;
    size_t cut_at;
    const struct world_file *after_cut; /* what is there from then on; NULL: the same */
    int n_refused, status;              /* the next so many requests get this status and problem */
    const char *problem;
    atomic_bool stalls;    /* nobody gets another byte */
    pthread_mutex_t mutex; /* protects what stands above and the next two */
    char log[4096]; /* a line a request: method, path, arguments, Range, If-Range, Content-Digest */
    char put[1 << 16];
    size_t n_put;

    char dir[SH_TEST_DIR_BYTES], url[64], key[128];
    struct sh_loop *loop;
    struct files here;
};

/* ------------------------------------------------------------------ the server */

struct world_body {
    struct world *w;
    const char *data;
    size_t bytes, cut_at; /* cut_at 0: it is sent to its end */
    bool damaged;
};

static ssize_t world_read(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct world_body *b = cls;
    size_t end = b->cut_at ? b->cut_at : b->bytes, n = SH_MIN(max, end - (size_t)pos);

    while (atomic_load(&b->w->stalls))
        usleep(2000);
    if (n == 0)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    memcpy(buf, b->data + pos, n);
    if (b->damaged && pos == 0)
        buf[0] ^= 1;
    return (ssize_t)n;
}

static const struct world_file *world_find(const struct world *w, const char *url)
{
    for (size_t i = 0; i < w->n_files; i++) {
        size_t n = strlen(w->files[i].name), len = strlen(url);

        if (len >= n && strcmp(url + len - n, w->files[i].name) == 0)
            return &w->files[i];
    }
    return NULL;
}

static const char *world_header(struct MHD_Connection *c, const char *name)
{
    const char *s = MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);

    return s ? s : "-";
}

static enum MHD_Result world_argument(void *cls, enum MHD_ValueKind kind, const char *key,
                                      const char *value)
{
    struct world *w = cls;
    size_t n = strlen(w->log);

    (void)kind;
    snprintf(w->log + n, sizeof(w->log) - n, " %s=%s", key, value);
    return MHD_YES;
}

static void world_note(struct world *w, struct MHD_Connection *c, const char *url,
                       const char *method)
{
    size_t n = strlen(w->log);

    snprintf(w->log + n, sizeof(w->log) - n, "%s %s", method, url);
    MHD_get_connection_values(c, MHD_GET_ARGUMENT_KIND, world_argument, w);
    n = strlen(w->log);
    if (strcmp(method, "PUT") == 0)
        snprintf(w->log + n, sizeof(w->log) - n, " %s\n", world_header(c, "Content-Digest"));
    else
        snprintf(w->log + n, sizeof(w->log) - n, " %s %s\n", world_header(c, "Range"),
                 world_header(c, "If-Range"));
    w->n_put = 0;
}

static struct MHD_Response *world_serve(struct world *w, struct MHD_Connection *c,
                                        struct world_file *f, bool has_body, int *status)
{
    const char *range = world_header(c, "Range");
    size_t from = strcmp(world_header(c, "If-Range"), f->etag) == 0
                      ? strtoul(range + strlen("bytes="), NULL, 10)
                      : 0;
    struct world_body *b = calloc(1, sizeof(*b));
    struct MHD_Response *r;

    *b = (struct world_body){.w = w, .data = f->data + from, .bytes = f->bytes - from};
    *status = from ? 206 : 200;
    r = MHD_create_response_from_callback(b->bytes, 4096, world_read, b, free);
    MHD_add_response_header(r, "ETag", f->etag);
    if (has_body && w->n_cuts > 0) {
        w->n_cuts--;
        b->cut_at = w->cut_at;
        if (w->after_cut)
            *f = *w->after_cut;
    }
    if (has_body && w->n_damaged > 0) {
        w->n_damaged--;
        b->damaged = true;
    }
    return r;
}

static enum MHD_Result world_answer(void *cls, struct MHD_Connection *c, const char *url,
                                    const char *method, const char *version, const char *data,
                                    size_t *n_data, void **state)
{
    struct world *w = cls;
    struct MHD_Response *r = NULL;
    struct world_file *f = (struct world_file *)world_find(w, url);
    int status = 200;
    enum MHD_Result ok;

    (void)version;
    pthread_mutex_lock(&w->mutex);
    if (!*state || *n_data > 0) {
        if (!*state)
            world_note(w, c, url, method);
        *state = w;
        if (*n_data > 0 && *n_data <= sizeof(w->put) - w->n_put)
            memcpy(w->put + w->n_put, data, *n_data);
        w->n_put += *n_data;
        *n_data = 0;
        pthread_mutex_unlock(&w->mutex);
        return MHD_YES;
    }
    if (w->n_refused > 0) {
        w->n_refused--;
        status = w->status;
        r = MHD_create_response_from_buffer(strlen(w->problem), (void *)(uintptr_t)w->problem,
                                            MHD_RESPMEM_PERSISTENT);
    } else if (strcmp(method, "PUT") == 0) {
        r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    } else if (f) {
        r = world_serve(w, c, f, strcmp(method, "GET") == 0, &status);
    } else {
        status = 404;
        r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    }
    pthread_mutex_unlock(&w->mutex);
    ok = MHD_queue_response(c, (unsigned)status, r);
    MHD_destroy_response(r);
    return ok;
}

/* ------------------------------------------------------------------ life */

static void world_sha(const char *data, size_t bytes, char hex[static SH_SHA256_HEX])
{
    uint8_t sha[SH_SHA256_BYTES];

    assert_ok(sh_sha256(data, bytes, sha, NULL));
    sh_hex(sha, sizeof(sha), hex);
}

/* name: NULL: the file's SHA-256. data: BORROWED. */
static void world_file(struct world_file *f, const char *name, const char *data, size_t bytes)
{
    static char names[N_FILES][SH_SHA256_HEX];
    static int n;
    char *hex = names[n++ % N_FILES];

    world_sha(data, bytes, hex);
    *f = (struct world_file){.name = name ? name : hex, .data = data, .bytes = bytes};
    snprintf(f->etag, sizeof(f->etag), "\"%s\"", hex);
}

static const struct world_file *world_add(struct world *w, const char *name, const char *data,
                                          size_t bytes)
{
    assert_true(w->n_files < N_FILES);
    world_file(&w->files[w->n_files], name, data, bytes);
    return &w->files[w->n_files++];
}

static void world_make_dir(const struct world *w, const char *name)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", w->dir, name);
    assert_int_equal(mkdir(path, 0750), 0);
}

/* Anew, with so much patience. */
static void world_begin_transfers(struct world *w, int64_t retry_s)
{
    const struct transfer_conf c = {
        .executor = w->here.executor, .api = w->url, .key_file = w->key, .retry_s = retry_s};

    transfers_free(w->here.transfers);
    assert_ok(transfers_new(&c, w->loop, &w->here.transfers, NULL));
}

static void world_start(struct world *w)
{
    static const char *const DIRS[] = {"blobs", "blobs/tmp", "blobs/packages", "blobs/datasets",
                                       "jobs"};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    *w = (struct world){.problem = ""};
    pthread_mutex_init(&w->mutex, NULL);
    sh_test_dir_make(w->dir);
    for (size_t i = 0; i < SH_ARRAY_LEN(DIRS); i++)
        world_make_dir(w, DIRS[i]);
    snprintf(w->key, sizeof(w->key), "%s/key", w->dir);
    sh_test_write_file(w->key, "shunt_x\n", 8);
    w->server =
        MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION, 0, NULL,
                         NULL, world_answer, w, MHD_OPTION_SOCK_ADDR, &at, MHD_OPTION_END);
    assert_non_null(w->server);
    snprintf(w->url, sizeof(w->url), "http://127.0.0.1:%u",
             MHD_get_daemon_info(w->server, MHD_DAEMON_INFO_BIND_PORT)->port);
    w->here = (struct files){.state_dir = w->dir, .executor = "gpu 0"};
    assert_ok(sh_loop_new(&w->loop, NULL));
    world_begin_transfers(w, 1);
}

static int world_remove(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static void world_stop(struct world *w)
{
    transfers_free(w->here.transfers);
    atomic_store(&w->stalls, false);
    MHD_stop_daemon(w->server);
    sh_loop_free(w->loop);
    pthread_mutex_destroy(&w->mutex);
    assert_int_equal(nftw(w->dir, world_remove, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static bool world_has(const struct world *w, const char *name)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", w->dir, name);
    return access(path, F_OK) == 0;
}

#endif
