/* auth.c - see auth.h. The table uses open addressing over a fixed array of slots; a full
 * neighbourhood evicts its oldest entry, which then costs another look-up. */
#include "api/cache/auth.h"

#include "api/store/store.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define N_SLOTS 16384u /* a power of two */
#define PROBES 8u
#define UNKNOWN_NS SH_S(5)
#define USED_STEP_MS 1000
#define BATCH_IDS 256

struct entry {
    char id[AUTH_ID_CHARS + 1]; /* "" = free */
    bool known; /* false: the database has no such key, or it is revoked or expired */
    uint8_t hash[SH_SHA256_BYTES];
    uint8_t old_hash[SH_SHA256_BYTES]; /* of the secret before the last rotation ... */
    int64_t old_until_ms;              /* ... which counts until then; 0 = there is none */
    struct api_who who;
    int64_t expires_ms; /* 0 = never */
    int64_t loaded_ns;
    int64_t used_ms, written_ms; /* last use, and the one that the database knows; 0 = none */
};

struct auth {
    pthread_mutex_t lock; /* the slots; held for a copy only */
    struct entry *slots;
    uint64_t changes; /* grows with each look at changed keys: what was read before it is old */
};

static const struct {
    const char *name;
    unsigned role;
} ROLES[] = {
    {"admin", ROLE_ADMIN},   {"tenant-admin", ROLE_TENANT_ADMIN},
    {"submit", ROLE_SUBMIT}, {"infer", ROLE_INFER},
    {"read", ROLE_READ},     {"executor", ROLE_EXECUTOR},
};

/* enum api_role; 0 if unknown. */
static unsigned role_of(const char *name)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(ROLES); i++)
        if (strcmp(ROLES[i].name, name) == 0)
            return ROLES[i].role;
    return 0;
}

const char *auth_role_name(unsigned role)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(ROLES); i++)
        if (ROLES[i].role == role)
            return ROLES[i].name;
    return NULL;
}

int auth_new(struct auth **out, struct sh_err *err)
{
    struct auth *a = calloc(1, sizeof(*a));

    *out = NULL;
    if (a)
        a->slots = calloc(N_SLOTS, sizeof(*a->slots));
    if (!a || !a->slots) {
        free(a);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the key cache");
    }
    pthread_mutex_init(&a->lock, NULL);
    *out = a;
    return SH_OK;
}

void auth_free(struct auth *a)
{
    if (!a)
        return;
    pthread_mutex_destroy(&a->lock);
    free(a->slots);
    free(a);
}

int auth_parse(const char *header, char id[static AUTH_ID_CHARS + 1], const char **secret,
               struct sh_err *err)
{
    static const char ID_CHARS[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    const char *s = header;

    if (!s)
        return SH_FAIL(err, SH_E_UNAUTHENTICATED,
                       "an API key is needed: send the header Authorization: Bearer shunt_...");
    if (strncasecmp(s, "Bearer ", 7) != 0)
        return SH_FAIL(err, SH_E_UNAUTHENTICATED,
                       "the Authorization header must be of the form: Bearer shunt_...");
    s += 7;
    s += strspn(s, " ");
    /* A stream keeps a copy of it and is ended by it: none may be too long for that. */
    if (strlen(header) >= AUTH_HEADER_BYTES || strncmp(s, "shunt_", 6) != 0 ||
        strspn(s + 6, ID_CHARS) != AUTH_ID_CHARS || s[6 + AUTH_ID_CHARS] != '_' ||
        strlen(s) >= AUTH_KEY_BYTES || strchr(s, ' '))
        return SH_FAIL(err, SH_E_UNAUTHENTICATED, "this is not a Shunt API key");
    memcpy(id, s + 6, AUTH_ID_CHARS);
    id[AUTH_ID_CHARS] = '\0';
    *secret = s + 6 + AUTH_ID_CHARS + 1;
    return SH_OK;
}

/* Slot of the id, or the one to use for it. lock is held. */
static struct entry *key_slot(struct auth *a, const char *id)
{
    uint32_t h = sh_crc32c(0, id, strlen(id));
    struct entry *worst = NULL;

    for (uint32_t i = 0; i < PROBES; i++) {
        struct entry *e = &a->slots[(h + i) & (N_SLOTS - 1)];

        if (strcmp(e->id, id) == 0)
            return e;
        if (!worst || (worst->id[0] && (!e->id[0] || e->loaded_ns < worst->loaded_ns)))
            worst = e;
    }
    return worst;
}

static bool lookup(struct auth *a, const char *id, struct entry *out)
{
    bool found;
    const struct entry *e;

    pthread_mutex_lock(&a->lock);
    e = key_slot(a, id);
    found = strcmp(e->id, id) == 0 && (e->known || sh_clock_ns() - e->loaded_ns < UNKNOWN_NS);
    if (found)
        *out = *e;
    pthread_mutex_unlock(&a->lock);
    return found;
}

/* lock is held. */
static void entry_put(struct entry *slot, const struct entry *e)
{
    bool same = strcmp(slot->id, e->id) == 0;
    int64_t used_ms = same ? slot->used_ms : 0, written_ms = same ? slot->written_ms : 0;

    *slot = *e;
    slot->used_ms = used_ms;
    slot->written_ms = written_ms;
}

static uint64_t changes(struct auth *a)
{
    uint64_t n;

    pthread_mutex_lock(&a->lock);
    n = a->changes;
    pthread_mutex_unlock(&a->lock);
    return n;
}

/* Unless a key was changed after e was read: then it may be the one that must not be kept. *out:
 * what had the slot. */
static void insert_key(struct auth *a, const struct entry *e, uint64_t read_at, struct entry *out)
{
    struct entry *slot;

    *out = (struct entry){.id = ""};
    pthread_mutex_lock(&a->lock);
    if (a->changes == read_at) {
        slot = key_slot(a, e->id);
        *out = *slot;
        entry_put(slot, e);
    }
    pthread_mutex_unlock(&a->lock);
}

/* At once, of one that the cache does not hold. What comes of the request does not depend on it. */
static void write_use(struct db *db, const char *id, int64_t used_ms)
{
    struct sh_err err = {0};
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, used_ms);
    if (store_key_used(db, id, text, &err))
        sh_log_err(SH_LOG_WARN, "key.used", &err);
}

/* Of what auth_refresh has read since read_ns: an entry that was forgotten meanwhile stays so, and
 * one that was loaded meanwhile may be newer. */
static void renew(struct auth *a, const struct entry *e, int64_t read_ns)
{
    struct entry *slot;

    pthread_mutex_lock(&a->lock);
    slot = key_slot(a, e->id);
    if (strcmp(slot->id, e->id) == 0 && slot->known && slot->loaded_ns <= read_ns)
        entry_put(slot, e);
    pthread_mutex_unlock(&a->lock);
}

static void entry_forget(struct entry *e)
{
    e->known = false;
    e->loaded_ns = -UNKNOWN_NS;
}

void auth_forget(struct auth *a, const char *id)
{
    struct entry *e;

    pthread_mutex_lock(&a->lock);
    a->changes++;
    e = key_slot(a, id);
    if (strcmp(e->id, id) == 0)
        entry_forget(e);
    pthread_mutex_unlock(&a->lock);
}

void auth_forget_tenant(struct auth *a, const char *tenant)
{
    pthread_mutex_lock(&a->lock);
    a->changes++;
    for (size_t i = 0; i < N_SLOTS; i++)
        if (a->slots[i].id[0] && strcmp(a->slots[i].who.tenant, tenant) == 0)
            entry_forget(&a->slots[i]);
    pthread_mutex_unlock(&a->lock);
}

/* False: the cache does not hold it. */
static bool touch_key(struct auth *a, const char *id, int64_t now_ms)
{
    struct entry *e;
    bool found;

    pthread_mutex_lock(&a->lock);
    e = key_slot(a, id);
    found = strcmp(e->id, id) == 0;
    if (found)
        e->used_ms = now_ms;
    pthread_mutex_unlock(&a->lock);
    return found;
}

static int read_key_row(const struct db_res *res, size_t row, struct entry *out, struct sh_err *err)
{
    const char *state = db_text(res, row, 5), *old = db_text(res, row, 10);
    int rc;

    *out = (struct entry){.loaded_ns = sh_clock_ns()};
    sh_strlcpy(out->id, db_text(res, row, 0), sizeof(out->id));
    sh_strlcpy(out->who.key_id, out->id, sizeof(out->who.key_id));
    out->who.tenant_id = db_i64(res, row, 1, 0);
    sh_strlcpy(out->who.tenant, db_text(res, row, 2), sizeof(out->who.tenant));
    out->who.role = role_of(db_text(res, row, 3));
    out->who.suspended = strcmp(state, "SUSPENDED") == 0;
    out->known = db_bool(res, row, 6) && strcmp(state, "DELETED") != 0;
    if (strcmp(state, "DELETED") == 0)
        sh_metrics_forget(out->who.tenant, NULL);
    out->expires_ms = db_i64(res, row, 7, 0);
    out->who.requests_per_second = db_f64(res, row, 8, 0);
    out->who.burst = db_i64(res, row, 9, 0);
    out->old_until_ms = db_i64(res, row, 11, 0);
    rc = sh_unhex(db_text(res, row, 4), out->hash, sizeof(out->hash), err);
    if (!rc && old)
        rc = sh_unhex(old, out->old_hash, sizeof(out->old_hash), err);
    return rc;
}

static int entry_load(struct auth *a, const char *id, struct db *db, struct entry *out,
                      struct sh_err *err)
{
    struct db_res *res = NULL;
    struct entry was;
    uint64_t read_at = changes(a);
    int rc = store_key_load(db, id, &res, err);

    if (rc)
        return rc;
    *out = (struct entry){.loaded_ns = sh_clock_ns()};
    sh_strlcpy(out->id, id, sizeof(out->id));
    if (db_rows(res) > 0)
        rc = read_key_row(res, 0, out, err);
    db_res_free(res);
    if (rc)
        return rc;
    insert_key(a, out, read_at, &was);
    if (was.used_ms != was.written_ms && strcmp(was.id, id) != 0)
        write_use(db, was.id, was.used_ms);
    return SH_OK;
}

static int check_secret(const struct entry *e, const uint8_t hash[SH_SHA256_BYTES], int64_t now_ms,
                        struct sh_err *err)
{
    bool is_new = sh_mem_equal_ct(hash, e->hash, sizeof(e->hash));
    bool is_old = sh_mem_equal_ct(hash, e->old_hash, sizeof(e->old_hash));

    if (is_new || (is_old && now_ms < e->old_until_ms))
        return SH_OK;
    if (is_old && e->old_until_ms > 0)
        return SH_FAIL(err, SH_E_UNAUTHENTICATED, "the API key was rotated: use its new secret");
    return SH_FAIL(err, SH_E_UNAUTHENTICATED, "the API key is unknown");
}

int auth_check(struct auth *a, const char *header, struct db *db, struct api_who *out,
               struct sh_err *err)
{
    uint8_t hash[SH_SHA256_BYTES];
    char id[AUTH_ID_CHARS + 1];
    const char *secret;
    struct entry e;
    int64_t now_ms = sh_clock_wall_ms();
    int rc = auth_parse(header, id, &secret, err);

    if (rc)
        return rc;
    if (!lookup(a, id, &e)) {
        if (!db)
            return API_AGAIN;
        rc = entry_load(a, id, db, &e, err);
        if (rc)
            return rc;
    }
    rc = sh_sha256(secret, strlen(secret), hash, err);
    if (rc)
        return rc;
    rc = check_secret(&e, hash, now_ms, err);
    if (rc)
        return rc;
    if (e.expires_ms > 0 && now_ms >= e.expires_ms)
        return SH_FAIL(err, SH_E_UNAUTHENTICATED, "the API key has expired");
    if (!e.known)
        return SH_FAIL(err, SH_E_UNAUTHENTICATED, "the API key was revoked");
    *out = e.who;
    if (now_ms - e.used_ms >= USED_STEP_MS && !touch_key(a, id, now_ms) && db)
        write_use(db, id, now_ms);
    return SH_OK;
}

/* Ids of cached entries from slot *at on, at most BATCH_IDS, with commas. */
static size_t collect_ids(struct auth *a, size_t *at, char *out, size_t size)
{
    size_t n = 0, len = 0;

    out[0] = '\0';
    pthread_mutex_lock(&a->lock);
    for (; *at < N_SLOTS && n < BATCH_IDS; ++*at) {
        struct entry *e = &a->slots[*at];

        if (e->id[0] && !e->known && e->used_ms == e->written_ms)
            *e = (struct entry){0};
        if (!e->id[0])
            continue;
        len += (size_t)snprintf(out + len, size - len, "%s%s", n ? "," : "", e->id);
        n++;
    }
    pthread_mutex_unlock(&a->lock);
    return n;
}

int auth_refresh(struct auth *a, struct db *db, struct sh_err *err)
{
    char ids[BATCH_IDS * (AUTH_ID_CHARS + 1) + 1];
    int rc = SH_OK;

    pthread_mutex_lock(&a->lock);
    a->changes++;
    pthread_mutex_unlock(&a->lock);
    for (size_t at = 0; !rc && at < N_SLOTS;) {
        struct db_res *res = NULL;
        int64_t read_ns = sh_clock_ns();

        if (collect_ids(a, &at, ids, sizeof(ids)) == 0)
            continue;
        rc = store_key_load(db, ids, &res, err);
        for (size_t i = 0; !rc && i < db_rows(res); i++) {
            struct entry e;

            rc = read_key_row(res, i, &e, err);
            if (!rc)
                renew(a, &e, read_ns);
        }
        db_res_free(res);
    }
    return rc;
}

struct used { /* a batch on its way */
    size_t slot[BATCH_IDS];
    char id[BATCH_IDS][AUTH_ID_CHARS + 1];
    int64_t ms[BATCH_IDS];
    size_t n;
    char ids[BATCH_IDS * (AUTH_ID_CHARS + 1) + 1], times[BATCH_IDS * 21 + 1];
};

/* Entries from slot *at on that were used after their last writing. */
static void collect_used(struct auth *a, size_t *at, struct used *u)
{
    size_t len = 0, times_len = 0;

    u->n = 0;
    pthread_mutex_lock(&a->lock);
    for (; *at < N_SLOTS && u->n < BATCH_IDS; ++*at) {
        const struct entry *e = &a->slots[*at];
        const char *comma = u->n ? "," : "";

        if (!e->id[0] || e->used_ms == e->written_ms)
            continue;
        u->slot[u->n] = *at;
        memcpy(u->id[u->n], e->id, sizeof(e->id));
        u->ms[u->n++] = e->used_ms;
        len += (size_t)snprintf(u->ids + len, sizeof(u->ids) - len, "%s%s", comma, e->id);
        times_len += (size_t)snprintf(u->times + times_len, sizeof(u->times) - times_len,
                                      "%s%" PRId64, comma, e->used_ms);
    }
    pthread_mutex_unlock(&a->lock);
}

static void note_written(struct auth *a, const struct used *u)
{
    pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i < u->n; i++) {
        struct entry *e = &a->slots[u->slot[i]];

        if (strcmp(e->id, u->id[i]) == 0)
            e->written_ms = u->ms[i];
    }
    pthread_mutex_unlock(&a->lock);
}

int auth_write_used(struct auth *a, struct db *db, struct sh_err *err)
{
    struct used u;
    int rc = SH_OK;

    for (size_t at = 0; !rc && at < N_SLOTS;) {
        collect_used(a, &at, &u);
        if (u.n > 0)
            rc = store_key_used(db, u.ids, u.times, err);
        if (u.n > 0 && !rc)
            note_written(a, &u);
    }
    return rc;
}

int auth_make_key(const char *id, struct auth_new_key *out, struct sh_err *err)
{
    static const char CHARS[] = "abcdefghijklmnopqrstuvwxyz012345"; /* 32: no bias from 5 bits */
    uint8_t random[AUTH_ID_CHARS + 32], hash[SH_SHA256_BYTES];
    char secret[44];
    int rc = sh_random(random, sizeof(random), err);

    if (rc)
        return rc;
    for (size_t i = 0; i < AUTH_ID_CHARS; i++)
        out->id[i] = id ? id[i] : CHARS[random[i] % 32];
    out->id[AUTH_ID_CHARS] = '\0';
    sh_base64url(random + AUTH_ID_CHARS, 32, secret);
    snprintf(out->text, sizeof(out->text), "shunt_%s_%s", out->id, secret);
    rc = sh_sha256(secret, strlen(secret), hash, err);
    if (!rc)
        sh_hex(hash, sizeof(hash), out->hash_hex);
    return rc;
}

/* Does the file hold a key that the database knows and has not revoked? */
static int is_current(struct db *db, const char *path, bool *out, struct sh_err *err)
{
    char header[AUTH_HEADER_BYTES] = "Bearer ", id[AUTH_ID_CHARS + 1];
    const char *secret;
    struct db_res *res = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc;
    ssize_t n;

    *out = false;
    if (fd < 0)
        return errno == ENOENT
                   ? SH_OK
                   : SH_FAIL_ERRNO(err, SH_E_IO, "could not open the key file %s", path);
    n = read(fd, header + 7, AUTH_KEY_BYTES);
    close(fd);
    if (n <= 0)
        return SH_OK;
    header[7 + n] = '\0';
    header[strcspn(header, "\r\n")] = '\0';
    if (auth_parse(header, id, &secret, NULL))
        return SH_OK;
    rc = store_key_load(db, id, &res, err);
    *out = !rc && db_rows(res) > 0 && db_bool(res, 0, 6);
    db_res_free(res);
    return rc;
}

/* The file appears whole or not at all. */
static int write_key_file(const char *path, const char *key, struct sh_err *err)
{
    char *tmp = NULL;
    int fd = -1, rc = sh_asprintf(err, &tmp, "%s.new", path);

    if (rc)
        return rc;
    unlink(tmp); /* of a start that ended half-way; it has other permissions perhaps */
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not create the key file %s", path);
    else if (dprintf(fd, "%s\n", key) < 0 || fsync(fd))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write the key file %s", path);
    if (fd >= 0)
        close(fd);
    if (!rc && rename(tmp, path))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not put the key file %s in its place", path);
    if (rc)
        unlink(tmp);
    free(tmp);
    return rc;
}

struct bootstrap {
    const char *role, *path;
    const struct auth_new_key *key;
    bool *made;
};

static int bootstrap_tx(struct db *db, const void *arg, struct sh_err *err)
{
    const struct bootstrap *b = arg;
    struct store_key k = {
        .id = b->key->id, .name = "bootstrap", .role = b->role, .hash_hex = b->key->hash_hex};
    json_t *row = NULL;
    bool exists;
    int rc = store_key_role_exists(db, b->role, &exists, err);

    *b->made = false; /* this may run again */
    if (rc || exists)
        return rc;
    rc = store_key_create(db, "bootstrap", "bootstrap", &k, &row, err);
    json_decref(row);
    /* Before the commit: a file whose key never came to be is replaced at the next start; a key
     * that is in no file would lock everybody out. */
    if (!rc)
        rc = write_key_file(b->path, b->key->text, err);
    *b->made = !rc;
    return rc;
}

int auth_bootstrap(struct db *db, const char *role, const char *path, bool *made,
                   struct sh_err *err)
{
    struct auth_new_key key = {0};
    struct bootstrap b = {.role = role, .path = path, .key = &key, .made = made};
    bool current;
    int rc;

    *made = false;
    rc = is_current(db, path, &current, err);
    if (rc || current)
        return rc;
    rc = auth_make_key(NULL, &key, err);
    if (!rc)
        rc = db_tx(db, "key_bootstrap", bootstrap_tx, &b, err);
    if (rc)
        *made = false;
    else if (!*made)
        SH_WARN("key.other",
                "file=\"%s\" role=%s msg=\"another key of this role is live: none is made; for a "
                "new one revoke all of them in the database\"",
                path, role);
    return rc;
}
