/* http_tls.c - see http_tls.h. A pair is kept as text and imported for each handshake, which then
 * owns its copy: so no connection can use a pair that is gone. */
#include "api/http/http_tls.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/abstract.h>
#include <gnutls/x509.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_PEM (1 << 20)
#define MAX_CHAIN 16u
#define LOOK_NS SH_S(1)

static const struct {
    const char *name, *priority;
} VERSIONS[] = {
    {"1.2", "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
    {"1.3", "NORMAL:-VERS-ALL:+VERS-TLS1.3"},
};

struct pair {
    int refs;          /* under the lock of tls */
    char *cert, *key;  /* OWNED: PEM */
    int64_t expires_s; /* of the server's own certificate, Unix time */
};

struct stamp { /* of one file; all zero: there is none */
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime;
};

struct tls {
    const struct api_conf *conf;
    pthread_mutex_t lock; /* now, and counts of references */
    struct pair *now;
    struct stamp seen[2], tried[2];        /* at the last look; when they were last read */
    gnutls_certificate_credentials_t cred; /* that ask on_handshake() */
    int64_t look_ns;
};

/* ---------------------------------------------------------------- files */

static int read_pem(const char *path, char **out, struct sh_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *text = NULL;
    ssize_t n;
    int rc = SH_OK;

    if (fd < 0)
        return SH_FAIL_ERRNO(err, SH_E_NOTFOUND, "could not open the PEM file \"%s\"", path);
    text = malloc(MAX_PEM + 1);
    n = text ? read(fd, text, MAX_PEM) : 0;
    if (!text)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a PEM file");
    else if (n < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not read the PEM file \"%s\"", path);
    else if (n == 0)
        rc = SH_FAIL(err, SH_E_INVALID, "the PEM file \"%s\" is empty", path);
    else
        text[n] = '\0';
    close(fd);
    if (rc) {
        free(text);
        return rc;
    }
    *out = text;
    return SH_OK;
}

static void stamps_look(const struct tls *t, struct stamp out[static 2])
{
    const char *path[2] = {t->conf->tls_cert, t->conf->tls_key};
    struct stat st;

    memset(out, 0, 2 * sizeof(*out)); /* compared as bytes */
    for (int i = 0; i < 2; i++) {
        if (stat(path[i], &st))
            continue;
        out[i].dev = st.st_dev;
        out[i].ino = st.st_ino;
        out[i].size = st.st_size;
        out[i].mtime = st.st_mtim;
    }
}

/* ---------------------------------------------------------------- pairs */

static gnutls_datum_t datum(char *text)
{
    return (gnutls_datum_t){(unsigned char *)text, (unsigned)strlen(text)};
}

static void pair_free(struct pair *p)
{
    if (!p)
        return;
    free(p->cert);
    if (p->key) /* it need not lie about in freed memory */
        explicit_bzero(p->key, strlen(p->key));
    free(p->key);
    free(p);
}

static int check_key_pair(const struct api_conf *c, struct pair *p, struct sh_err *err)
{
    gnutls_datum_t cert = datum(p->cert), key = datum(p->key);
    gnutls_certificate_credentials_t cred = NULL;
    gnutls_x509_crt_t first = NULL;
    int e = gnutls_certificate_allocate_credentials(&cred), rc = SH_OK;

    if (e >= 0)
        e = gnutls_certificate_set_x509_key_mem(cred, &cert, &key, GNUTLS_X509_FMT_PEM);
    if (e >= 0)
        e = gnutls_x509_crt_init(&first);
    if (e >= 0)
        e = gnutls_x509_crt_import(first, &cert, GNUTLS_X509_FMT_PEM);
    if (e >= 0)
        p->expires_s = (int64_t)gnutls_x509_crt_get_expiration_time(first);
    else
        rc = SH_FAIL(err, SH_E_INVALID, "\"%s\" and \"%s\" are no certificate and its key: %s",
                     c->tls_cert, c->tls_key, gnutls_strerror(e));
    if (first)
        gnutls_x509_crt_deinit(first);
    if (cred)
        gnutls_certificate_free_credentials(cred);
    return rc;
}

static int pair_load(const struct api_conf *c, struct pair **out, struct sh_err *err)
{
    struct pair *p = calloc(1, sizeof(*p));
    int rc;

    *out = NULL;
    if (!p)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a certificate");
    p->refs = 1;
    rc = read_pem(c->tls_cert, &p->cert, err);
    if (!rc)
        rc = read_pem(c->tls_key, &p->key, err);
    if (!rc)
        rc = check_key_pair(c, p, err);
    if (rc) {
        pair_free(p);
        return rc;
    }
    *out = p;
    return SH_OK;
}

static void unref_pair(struct tls *t, struct pair *p)
{
    bool last;

    if (!p)
        return;
    pthread_mutex_lock(&t->lock);
    last = --p->refs == 0;
    pthread_mutex_unlock(&t->lock);
    if (last)
        pair_free(p);
}

static int cert_load(struct tls *t, struct sh_err *err)
{
    struct pair *p, *old;
    int rc;

    stamps_look(t, t->tried);
    memcpy(t->seen, t->tried, sizeof(t->seen));
    rc = pair_load(t->conf, &p, err);
    sh_metric_add(M_shunt_tls_loads_total, SH_LABELS(rc ? "failed" : "ok"), 1);
    if (rc)
        return rc;
    pthread_mutex_lock(&t->lock);
    old = t->now;
    t->now = p;
    pthread_mutex_unlock(&t->lock);
    unref_pair(t, old);
    sh_metric_set(M_shunt_tls_certificate_expiry_timestamp_seconds, NULL, (double)p->expires_s);
    if (p->expires_s * 1000 <= sh_clock_wall_ms())
        SH_WARN("tls.expired", "file=\"%s\" msg=\"clients will refuse this certificate\"",
                t->conf->tls_cert);
    return SH_OK;
}

/* ---------------------------------------------------------------- handshakes */

/* All that it returns is the session's, which frees it. */
static int on_handshake(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
                        gnutls_pcert_st **certs, unsigned *n_certs, gnutls_ocsp_data_st **ocsp,
                        unsigned *n_ocsp, gnutls_privkey_t *key, unsigned *flags)
{
    struct tls *t = gnutls_session_get_ptr(session);
    gnutls_pcert_st *chain = gnutls_calloc(MAX_CHAIN, sizeof(*chain));
    gnutls_datum_t d;
    struct pair *p;
    unsigned n = MAX_CHAIN;
    int e = chain ? gnutls_privkey_init(key) : GNUTLS_E_MEMORY_ERROR;

    (void)info;
    if (e < 0) {
        gnutls_free(chain);
        return e;
    }
    pthread_mutex_lock(&t->lock);
    p = t->now;
    p->refs++;
    pthread_mutex_unlock(&t->lock);
    d = datum(p->key);
    e = gnutls_privkey_import_x509_raw(*key, &d, GNUTLS_X509_FMT_PEM, NULL, 0);
    d = datum(p->cert);
    if (e >= 0)
        e = gnutls_pcert_list_import_x509_raw(chain, &n, &d, GNUTLS_X509_FMT_PEM, 0);
    unref_pair(t, p);
    if (e < 0) {
        gnutls_privkey_deinit(*key);
        gnutls_free(chain);
        return e;
    }
    *certs = chain;
    *n_certs = n;
    *ocsp = NULL;
    *n_ocsp = 0;
    *flags = GNUTLS_CERT_RETR_DEINIT_ALL;
    return 0;
}

/* ---------------------------------------------------------------- life */

int tls_start(const struct api_conf *conf, struct tls **out, struct sh_err *err)
{
    struct tls *t;
    int rc;

    *out = NULL;
    if (!conf->tls_cert || !conf->tls_cert[0])
        return SH_OK;
    t = calloc(1, sizeof(*t));
    if (!t)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate TLS");
    t->conf = conf;
    pthread_mutex_init(&t->lock, NULL);
    rc = cert_load(t, err);
    if (!rc && gnutls_certificate_allocate_credentials(&t->cred) < 0)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate TLS");
    if (!rc)
        gnutls_certificate_set_retrieve_function3(t->cred, on_handshake);
    if (rc) {
        tls_free(t);
        return rc;
    }
    *out = t;
    return SH_OK;
}

void tls_free(struct tls *t)
{
    if (!t)
        return;
    if (t->cred)
        gnutls_certificate_free_credentials(t->cred);
    pair_free(t->now);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static const char *priority_of(const char *name)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(VERSIONS); i++)
        if (strcmp(name, VERSIONS[i].name) == 0)
            return VERSIONS[i].priority;
    return NULL;
}

int tls_version_check(const char *name, struct sh_err *err)
{
    return priority_of(name)
               ? SH_OK
               : SH_FAIL(err, SH_E_INVALID, "tls-min-version must be 1.2 or 1.3, not \"%s\"", name);
}

void tls_options(const struct tls *t, struct MHD_OptionItem *out)
{
    out[0] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, (void *)on_handshake};
    out[1] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_PRIORITIES, 0,
                                     (void *)priority_of(t->conf->tls_min_version)};
}

void tls_attach(struct tls *t, struct MHD_Connection *conn)
{
    const union MHD_ConnectionInfo *info =
        t ? MHD_get_connection_info(conn, MHD_CONNECTION_INFO_GNUTLS_SESSION) : NULL;

    if (info)
        gnutls_session_set_ptr(info->tls_session, t);
}

int tls_session(struct tls *t, int fd, struct gnutls_session_int **out, struct sh_err *err)
{
    static const char H2[] = "h2";
    const gnutls_datum_t names[] = {{(unsigned char *)(uintptr_t)H2, sizeof(H2) - 1}};
    gnutls_session_t s = NULL;
    int e = gnutls_init(&s, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL);

    *out = NULL;
    if (e >= 0)
        e = gnutls_priority_set_direct(s, priority_of(t->conf->tls_min_version), NULL);
    if (e >= 0)
        e = gnutls_credentials_set(s, GNUTLS_CRD_CERTIFICATE, t->cred);
    if (e >= 0)
        e = gnutls_alpn_set_protocols(s, names, 1, GNUTLS_ALPN_MANDATORY);
    if (e < 0) {
        if (s)
            gnutls_deinit(s);
        return SH_FAIL(err, SH_E_NOMEM, "could not start TLS: %s", gnutls_strerror(e));
    }
    gnutls_session_set_ptr(s, t);
    gnutls_transport_set_int(s, fd);
    *out = s;
    return SH_OK;
}

void tls_send_last(struct MHD_Connection *conn, const char *text, size_t n)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_GNUTLS_SESSION);

    if (info && gnutls_record_send(info->tls_session, text, n) == (ssize_t)n)
        gnutls_bye(info->tls_session, GNUTLS_SHUT_WR);
}

void tls_reload(struct tls *t)
{
    struct sh_err err = {0};

    if (!t)
        return;
    if (cert_load(t, &err))
        sh_log_err(SH_LOG_ERROR, "tls.kept_old", &err);
    else
        SH_INFO("tls.loaded", "file=\"%s\" expires_s=%" PRId64, t->conf->tls_cert,
                t->now->expires_s);
}

/* Two files are not replaced at once: what changed is read when a look has found nothing new. */
void tls_tick(struct tls *t)
{
    struct stamp now[2];

    if (!t || sh_clock_ns() < t->look_ns)
        return;
    t->look_ns = sh_clock_ns() + LOOK_NS;
    stamps_look(t, now);
    if (memcmp(now, t->seen, sizeof(now)) == 0 && memcmp(now, t->tried, sizeof(now)) != 0)
        tls_reload(t);
    else
        memcpy(t->seen, now, sizeof(now));
}
