/* regions.c - see regions.h. */
#include "api/infer/regions.h"

#include "api/request/copiers.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES 256u

struct region {
    atomic_int refs;
    struct copiers *copiers; /* BORROWED */
    int fd;
    dev_t dev; /* which memory had the key then */
    ino_t ino;
    uint64_t offset, bytes;
    char tenant[64], name[NAME_BYTES], key[NAME_BYTES];
};

struct regions {
    enum regions_mode mode;
    size_t most, most_of_tenant;
    struct copiers *copiers; /* BORROWED */
    pthread_mutex_t lock;
    struct region **list; /* in the order of their registration */
    size_t n, cap;
};

static const char *const MODES[REGIONS_N_MODES] = {
    [REGIONS_OFF] = "off", [REGIONS_OWN] = "own", [REGIONS_ANY] = "any"};

int regions_mode_parse(const char *name, enum regions_mode *out, struct sh_err *err)
{
    for (int m = 0; m < REGIONS_N_MODES; m++)
        if (strcmp(name, MODES[m]) == 0) {
            *out = (enum regions_mode)m;
            return SH_OK;
        }
    return SH_FAIL(err, SH_E_INVALID, "client-shm must be off, own or any, not \"%.32s\"", name);
}

int regions_new(enum regions_mode mode, size_t most, size_t most_of_tenant, struct copiers *copiers,
                struct regions **out, struct sh_err *err)
{
    struct regions *r = calloc(1, sizeof(*r));

    *out = NULL;
    if (!r)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the table of shared memory");
    r->mode = mode;
    r->most = most;
    r->most_of_tenant = most_of_tenant;
    r->copiers = copiers;
    pthread_mutex_init(&r->lock, NULL);
    *out = r;
    return SH_OK;
}

void regions_free(struct regions *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++)
        region_put(r->list[i]);
    pthread_mutex_destroy(&r->lock);
    free(r->list);
    free(r);
}

int regions_check_on(const struct regions *r, struct sh_err *err)
{
    if (r->mode != REGIONS_OFF)
        return SH_OK;
    return SH_FAIL(err, SH_E_UNSUPPORTED,
                   "shared memory of clients is off (option client-shm of the server); send "
                   "tensors in the body, as binary data");
}

void region_put(struct region *g)
{
    if (!g || atomic_fetch_sub(&g->refs, 1) > 1)
        return;
    if (g->fd >= 0)
        close(g->fd);
    free(g);
}

/* ------------------------------------------------------------------ the table; under the lock */

/* name NULL: any. */
static bool is_region_of(const struct region *g, const char *tenant, const char *name)
{
    return strcmp(g->tenant, tenant) == 0 && (!name || strcmp(g->name, name) == 0);
}

static struct region **region_find(struct regions *r, const char *tenant, const char *name)
{
    for (size_t i = 0; i < r->n; i++)
        if (is_region_of(r->list[i], tenant, name))
            return &r->list[i];
    return NULL;
}

static size_t regions_count(const struct regions *r, const char *tenant)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n; i++)
        n += is_region_of(r->list[i], tenant, NULL);
    return n;
}

static bool is_same_region(const struct region *a, const struct region *b)
{
    return strcmp(a->key, b->key) == 0 && a->offset == b->offset && a->bytes == b->bytes;
}

/* Takes g unless it fails or the same is there already (*kept false). A client that was started
 * again has made its memory anew: what had the key before is nobody's. */
static int put_region(struct regions *r, struct region *g, bool *kept, struct sh_err *err)
{
    struct region **at = region_find(r, g->tenant, g->name);
    int rc;

    *kept = false;
    if (at && !is_same_region(*at, g))
        return SH_FAIL(err, SH_E_CONFLICT,
                       "the shared memory region \"%.128s\" is registered with other values; "
                       "unregister it first",
                       g->name);
    if (at && (*at)->ino == g->ino && (*at)->dev == g->dev)
        return SH_OK;
    if (at) {
        region_put(*at);
        *at = g;
        *kept = true;
        return SH_OK;
    }
    if (regions_count(r, g->tenant) >= r->most_of_tenant)
        return SH_FAIL(err, SH_E_QUOTA,
                       "tenant \"%s\" has %zu shared memory regions, as many as "
                       "max-tenant-regions allows; unregister some",
                       g->tenant, r->most_of_tenant);
    if (r->n >= r->most)
        return SH_FAIL(err, SH_E_QUEUEFULL,
                       "there are %zu shared memory regions, as many as max-regions allows", r->n);
    rc = sh_grow(&r->list, &r->cap, r->n + 1, sizeof(struct region *), r->most,
                 "shared memory regions", err);
    if (rc)
        return rc;
    r->list[r->n++] = g;
    *kept = true;
    return SH_OK;
}

/* ------------------------------------------------------------------ registration */

static int check_key(const struct regions *r, const char *tenant, const char *key,
                     struct sh_err *err)
{
    size_t n = strlen(tenant);
    int rc = regions_check_on(r, err);

    if (rc)
        return rc;
    if (key[0] != '/' || key[1] == '\0' || strchr(key + 1, '/') || strcmp(key, "/.") == 0 ||
        strcmp(key, "/..") == 0)
        return SH_FAIL(err, SH_E_INVALID,
                       "\"key\" must be the name of POSIX shared memory: \"/\" and no other slash");
    if (r->mode == REGIONS_OWN &&
        (strncmp(key + 1, tenant, n) != 0 || key[1 + n] != '.' || key[2 + n] == '\0'))
        return SH_FAIL(err, SH_E_FORBIDDEN,
                       "on this server \"key\" must begin with \"/%s.\", so that tenants cannot "
                       "read each other's memory",
                       tenant);
    return SH_OK;
}

static int open_key(struct region *g, struct sh_err *err)
{
    struct stat st;

    g->fd = shm_open(g->key, O_RDWR, 0);
    if (g->fd < 0 && errno == ENOENT)
        return SH_FAIL(err, SH_E_NOTFOUND,
                       "there is no shared memory \"%.128s\" on the server's host", g->key);
    if (g->fd < 0)
        return SH_FAIL_ERRNO(err, SH_E_INVALID,
                             "the server may not open the shared memory \"%.128s\" for reading and "
                             "writing; run it as the client's user, or give it the rights",
                             g->key);
    if (fstat(g->fd, &st) < 0 || !S_ISREG(st.st_mode))
        return SH_FAIL(err, SH_E_INVALID, "\"%.128s\" is no shared memory", g->key);
    g->dev = st.st_dev;
    g->ino = st.st_ino;
    if (g->bytes == 0 || g->offset > (uint64_t)st.st_size ||
        g->bytes > (uint64_t)st.st_size - g->offset)
        return SH_FAIL(err, SH_E_INVALID,
                       "the shared memory \"%.128s\" has %" PRIu64 " bytes; offset %" PRIu64
                       " and byte_size %" PRIu64 " do not fit",
                       g->key, (uint64_t)st.st_size, g->offset, g->bytes);
    return SH_OK;
}

int regions_add(struct regions *r, const char *tenant, const char *name, const char *key,
                uint64_t offset, uint64_t bytes, struct sh_err *err)
{
    struct region *g;
    bool kept = false;
    int rc = check_key(r, tenant, key, err);

    if (rc)
        return rc;
    g = calloc(1, sizeof(*g));
    if (!g)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a shared memory region");
    atomic_init(&g->refs, 1);
    g->copiers = r->copiers;
    g->fd = -1;
    g->offset = offset;
    g->bytes = bytes;
    if (!sh_strlcpy(g->tenant, tenant, sizeof(g->tenant)) ||
        !sh_strlcpy(g->name, name, sizeof(g->name)) || !sh_strlcpy(g->key, key, sizeof(g->key)))
        rc = SH_FAIL(err, SH_E_INVALID, "a name or key of shared memory has at most %u characters",
                     NAME_BYTES - 1);
    if (!rc)
        rc = open_key(g, err);
    if (!rc) {
        pthread_mutex_lock(&r->lock);
        rc = put_region(r, g, &kept, err);
        pthread_mutex_unlock(&r->lock);
    }
    if (!kept)
        region_put(g);
    return rc;
}

void regions_remove(struct regions *r, const char *tenant, const char *name)
{
    size_t keep = 0;

    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->n; i++) {
        struct region *g = r->list[i];

        if (is_region_of(g, tenant, name))
            region_put(g);
        else
            r->list[keep++] = g;
    }
    r->n = keep;
    pthread_mutex_unlock(&r->lock);
}

static int no_region(const char *name, struct sh_err *err)
{
    return SH_FAIL(err, SH_E_NOTFOUND, "there is no shared memory region \"%.128s\"; register it",
                   name);
}

int regions_list(struct regions *r, const char *tenant, const char *name, json_t **out,
                 struct sh_err *err)
{
    json_t *list = json_array();
    int rc = list ? SH_OK : SH_E_NOMEM;

    *out = NULL;
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; !rc && i < r->n; i++) {
        const struct region *g = r->list[i];

        if (is_region_of(g, tenant, name) &&
            json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I}", "name", g->name, "key",
                                                  g->key, "offset", (json_int_t)g->offset,
                                                  "byte_size", (json_int_t)g->bytes)))
            rc = SH_E_NOMEM;
    }
    pthread_mutex_unlock(&r->lock);
    if (rc)
        SH_FAIL(err, rc, "could not allocate the reply");
    else if (name && json_array_size(list) == 0)
        rc = no_region(name, err);
    if (rc)
        json_decref(list);
    else
        *out = list;
    return rc;
}

/* ------------------------------------------------------------------ use */

int regions_get(struct regions *r, const char *tenant, const char *name, uint64_t offset,
                uint64_t bytes, struct region **out, struct sh_err *err)
{
    struct region **at, *g = NULL;
    int rc = regions_check_on(r, err);

    *out = NULL;
    if (rc)
        return rc;
    pthread_mutex_lock(&r->lock);
    at = region_find(r, tenant, name);
    if (at) {
        g = *at;
        atomic_fetch_add(&g->refs, 1);
    }
    pthread_mutex_unlock(&r->lock);
    if (!g)
        return no_region(name, err);
    if (offset > g->bytes || bytes > g->bytes - offset) {
        SH_FAIL(err, SH_E_INVALID,
                "the shared memory region \"%.128s\" has %" PRIu64 " bytes; %" PRIu64
                " bytes at offset %" PRIu64 " do not fit",
                name, g->bytes, bytes, offset);
        region_put(g);
        return SH_E_INVALID;
    }
    *out = g;
    return SH_OK;
}

static int too_short(const struct region *g, struct sh_err *err)
{
    return SH_FAIL(err, SH_E_INVALID,
                   "the shared memory \"%.128s\" is shorter than it was when it was registered",
                   g->key);
}

int region_read(const struct region *g, uint64_t offset, void *to, size_t bytes, struct sh_err *err)
{
    ssize_t n = copiers_pread(g->copiers, g->fd, to, bytes, g->offset + offset);

    if (n < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not read the shared memory \"%.128s\"", g->key);
    return (size_t)n == bytes ? SH_OK : too_short(g, err);
}

/* A write beyond the end would make the client's memory longer: its length is asked for first. */
int region_write(const struct region *g, uint64_t offset, const void *from, size_t bytes,
                 struct sh_err *err)
{
    struct stat st;

    if (fstat(g->fd, &st) < 0 || g->offset + offset + bytes > (uint64_t)st.st_size)
        return too_short(g, err);
    return copiers_pwrite(g->copiers, g->fd, from, bytes, g->offset + offset)
               ? SH_OK
               : SH_FAIL_ERRNO(err, SH_E_IO, "could not write the shared memory \"%.128s\"",
                               g->key);
}
