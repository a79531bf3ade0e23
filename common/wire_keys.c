/* wire_keys.c - the key file, which addresses need a key, and the log of handshakes. */
#include "common/wire_keys.h"

#include "common/hash.h"
#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/wire_int.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_KEYS 2
#define MIN_KEY_BYTES 32
#define MAX_KEY_BYTES 128
#define MAX_FILE_BYTES 4096
#define LOG_EVERY_MS 5000

/* One version of the file. */
struct stamp {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime, ctime;
};

struct sh_wire_keys {
    const char *path; /* BORROWED; NULL: no key */
    bool plaintext;
    struct stamp stamp;
    struct sh_wire__key keys[MAX_KEYS];
    size_t n;
    int64_t warned_ns[2]; /* of those that connect to us, of those that we connect to */
    uint64_t warned_left[2];
};

/* ---------------------------------------------------------------- the file */

static size_t from_hex(const char *s, uint8_t *out)
{
    size_t n = strlen(s);

    if (n % 2 || n / 2 > MAX_KEY_BYTES || strspn(s, "0123456789abcdefABCDEF") != n)
        return 0;
    for (size_t i = 0; i < n; i += 2)
        out[i / 2] = (uint8_t)(sh_hex_digit(s[i]) << 4 | sh_hex_digit(s[i + 1]));
    return n / 2;
}

static size_t from_base64(const char *s, uint8_t *out)
{
    gnutls_datum_t text = {(unsigned char *)(uintptr_t)s, (unsigned)strlen(s)}, raw = {0};
    size_t n = 0;

    if (gnutls_base64_decode2(&text, &raw) < 0)
        return 0;
    if (raw.size <= MAX_KEY_BYTES)
        memcpy(out, raw.data, n = raw.size);
    gnutls_memset(raw.data, 0, raw.size);
    gnutls_free(raw.data);
    return n;
}

/* What travels and what is used are both derived: neither says anything of the other. */
static int make_wire_key(const char *line, struct sh_wire__key *out, struct sh_err *err)
{
    static const char ID[] = "shunt link identity 1", PSK[] = "shunt link key 1";
    uint8_t raw[MAX_KEY_BYTES], digest[SH_SHA256_BYTES];
    size_t n = from_hex(line, raw);
    int rc;

    if (n == 0)
        n = from_base64(line, raw);
    if (n < MIN_KEY_BYTES)
        return SH_FAIL(err, SH_E_INVALID,
                       "a key is %d to %d random bytes as hexadecimal or base64, one a line; make "
                       "one: openssl rand -hex 32",
                       MIN_KEY_BYTES, MAX_KEY_BYTES);
    rc = sh_hmac_sha256(raw, n, ID, sizeof(ID) - 1, digest, err);
    if (!rc) {
        sh_hex(digest, sizeof(out->id) / 2, out->id);
        rc = sh_hmac_sha256(raw, n, PSK, sizeof(PSK) - 1, out->psk, err);
    }
    gnutls_memset(raw, 0, sizeof(raw));
    return rc;
}

static int parse_keys(char *text, struct sh_wire__key *keys, size_t *n, struct sh_err *err)
{
    char *line;
    int rc = SH_OK;

    *n = 0;
    while (!rc && (line = strsep(&text, "\n"))) {
        line[strcspn(line, " \t\r#")] = '\0';
        if (line[0] == '\0')
            continue;
        if (*n == MAX_KEYS)
            return SH_FAIL(err, SH_E_INVALID, "there are more than %d keys", MAX_KEYS);
        rc = make_wire_key(line, &keys[(*n)++], err);
    }
    if (!rc && *n == 0)
        return SH_FAIL(err, SH_E_INVALID, "there is no key in it; make one: openssl rand -hex 32");
    return rc;
}

static int check_file(const struct stat *st, struct sh_err *err)
{
    if (!S_ISREG(st->st_mode) || st->st_size > MAX_FILE_BYTES)
        return SH_FAIL(err, SH_E_INVALID, "it must be a regular file of at most %d bytes",
                       MAX_FILE_BYTES);
    if (st->st_mode & (S_IRWXO | S_IWGRP | S_IXGRP))
        return SH_FAIL(err, SH_E_INVALID,
                       "its mode is %04o, and who reads it can pose as any of our processes: chmod "
                       "600 it (or 640)",
                       (unsigned)st->st_mode & 07777);
    return SH_OK;
}

static int read_keys(const char *path, struct sh_wire__key *keys, size_t *n, struct sh_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;
    char text[MAX_FILE_BYTES + 1];
    struct stat st;
    ssize_t len = -1;

    if (fd < 0 || fstat(fd, &st) != 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_INVALID, "it could not be opened");
        goto out;
    }
    rc = check_file(&st, err);
    if (rc)
        goto out;
    len = sh_read_all(fd, text, MAX_FILE_BYTES);
    if (len < 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_INVALID, "it could not be read");
        goto out;
    }
    text[len] = '\0';
    rc = parse_keys(text, keys, n, err);
out:
    gnutls_memset(text, 0, sizeof(text));
    if (fd >= 0)
        close(fd);
    return rc;
}

static struct stamp stamp_of(const char *path)
{
    struct stamp s = {0};
    struct stat st;

    if (stat(path, &st) == 0)
        s = (struct stamp){st.st_dev, st.st_ino, st.st_size, st.st_mtim, st.st_ctim};
    return s;
}

static bool same_stamp(const struct stamp *a, const struct stamp *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec &&
           a->ctime.tv_sec == b->ctime.tv_sec && a->ctime.tv_nsec == b->ctime.tv_nsec;
}

/* The stamp is taken before the file is read: a change in between is seen the next time. */
static int load_keys(struct sh_wire_keys *k, struct sh_err *err)
{
    struct sh_wire__key keys[MAX_KEYS];
    struct sh_err why = {0};
    size_t n = 0;
    int rc;

    k->stamp = stamp_of(k->path);
    rc = read_keys(k->path, keys, &n, &why);
    if (rc) {
        rc = SH_FAIL(err, rc, "the link key file %.200s: %s", k->path, why.msg);
        sh_err_detail(err, "%s", why.detail);
    } else {
        memcpy(k->keys, keys, sizeof(keys));
        k->n = n;
        SH_INFO("link.key", "key=%s also=%s", keys[0].id, n > 1 ? keys[1].id : "-");
    }
    gnutls_memset(keys, 0, sizeof(keys));
    return rc;
}

const struct sh_wire__key *sh_wire__keys(struct sh_wire_keys *k, size_t *n)
{
    struct sh_err err = {0};
    struct stamp now;

    *n = 0;
    if (!sh_wire__keys_on(k))
        return NULL;
    now = stamp_of(k->path);
    if (!same_stamp(&now, &k->stamp) && load_keys(k, &err))
        sh_log_err(SH_LOG_ERROR, "link.kept_old_key", &err);
    *n = k->n;
    return k->keys;
}

bool sh_wire__keys_on(const struct sh_wire_keys *k)
{
    return k && k->n > 0;
}

/* ---------------------------------------------------------------- addresses */

int sh_wire__keys_allow(const struct sh_wire_keys *k, const struct sh_wire__target *t,
                        struct sh_err *err)
{
    if (t->is_unix || sh_wire__keys_on(k) || (k && k->plaintext) || sh_wire_is_loopback(t->host))
        return SH_OK;
    return SH_FAIL(err, SH_E_INVALID,
                   "tcp:%.200s:%s is not only for this host, and nothing protects it: give every "
                   "process of the system the same --link-key-file (a key: openssl rand -hex 32), "
                   "or --link-plaintext if nobody else can reach that network",
                   t->host[0] ? t->host : "*", t->port);
}

static int check_list(const struct sh_wire_keys *k, const char *addrs, struct sh_err *err)
{
    char *copy = NULL, *rest, *addr;
    struct sh_wire__target t;
    int rc = sh_strdup(addrs, &copy, err);

    for (rest = copy; !rc && (addr = strsep(&rest, ","));) {
        if (addr[0] == '\0')
            continue;
        rc = sh_wire__parse(addr, &t, err);
        if (!rc)
            rc = sh_wire__keys_allow(k, &t, err);
        if (!rc && !t.is_unix && k->plaintext && !sh_wire_is_loopback(t.host))
            SH_WARN("link.plaintext",
                    "addr=\"%s\" msg=\"neither encrypted nor authenticated: anybody who reaches it "
                    "reads tenants' data and can pose as an executor\"",
                    addr);
    }
    free(copy);
    return rc;
}

int sh_wire_keys_open(const struct sh_wire_key_conf *c, const char *const *addrs,
                      struct sh_wire_keys **out, struct sh_err *err)
{
    struct sh_wire_keys *k = calloc(1, sizeof(*k));
    int rc = SH_OK;

    *out = NULL;
    if (!k)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the keys of links");
    k->path = c->key_file && c->key_file[0] ? c->key_file : NULL;
    k->plaintext = c->plaintext;
    if (k->path && k->plaintext)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "--link-key-file and --link-plaintext contradict each other: leave one out");
    if (!rc && k->path)
        rc = load_keys(k, err);
    for (size_t i = 0; !rc && addrs[i]; i++)
        rc = check_list(k, addrs[i], err);
    if (rc) {
        sh_wire_keys_free(k);
        return rc;
    }
    *out = k;
    return SH_OK;
}

void sh_wire_keys_free(struct sh_wire_keys *k)
{
    if (k)
        gnutls_memset(k->keys, 0, sizeof(k->keys));
    free(k);
}

/* ---------------------------------------------------------------- what is said */

void sh_wire__keys_note(struct sh_wire_keys *k, bool is_client, const char *result,
                        const char *peer, const struct sh_err *why)
{
    uint64_t *left = &k->warned_left[is_client];

    sh_metric_add(M_shunt_link_handshakes_total, SH_LABELS(is_client ? "client" : "server", result),
                  1);
    if (!why || !sh_log_ratelimit(&k->warned_ns[is_client], left, LOG_EVERY_MS))
        return;
    SH_WARN("link.refused", "side=%s peer=%s reason=%s msg=\"%s\" detail=\"%s\" left_out=%llu",
            is_client ? "client" : "server", peer, result, why->msg, why->detail,
            (unsigned long long)*left);
    *left = 0;
}
