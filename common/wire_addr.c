/* wire_addr.c - addresses, name lookups, listening and connecting. */
#include "common/mem.h"
#include "common/thread.h"
#include "common/wire_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define BACKLOG 511
#define SOCKET_MODE 0660 /* our user and group: what a message says is trusted */
#define LOCK_TRIES 100
#define LOCK_WAIT_MS 10

/* ---------------------------------------------------------------- parsing and looking up */

/* A relative path is of the folder in which the process was started. */
static int parse_unix(const char *path, struct sh_wire__target *out, struct sh_err *err)
{
    char cwd[sizeof(out->host)] = "";
    struct sockaddr_un un;
    int n;

    if (path[0] == '\0')
        return SH_FAIL(err, SH_E_INVALID, "the address \"unix:\" has no path");
    if (path[0] != '/' && !getcwd(cwd, sizeof(cwd)))
        return SH_FAIL_ERRNO(err, SH_E_INVALID,
                             "the path in \"unix:%.150s\" is relative, and the working folder's is "
                             "not to be had, or too long",
                             path);
    n = snprintf(out->host, sizeof(out->host), "%s%s%s", cwd, cwd[0] ? "/" : "", path);
    if (n < 0 || (size_t)n >= sizeof(un.sun_path))
        return SH_FAIL(err, SH_E_INVALID, "the path in \"unix:%.150s\" is longer than %zu bytes",
                       path, sizeof(un.sun_path) - 1);
    out->is_unix = true;
    return SH_OK;
}

static int parse_tcp(const char *s, struct sh_wire__target *out, struct sh_err *err)
{
    const char *colon = strrchr(s, ':'), *host = s;
    size_t n;
    int64_t port = 0;
    int rc;

    if (!colon)
        return SH_FAIL(err, SH_E_INVALID, "the address \"tcp:%.100s\" has no port", s);
    rc = sh_parse_i64(colon + 1, 0, 65535, "port", &port, err);
    if (rc)
        return rc;
    n = (size_t)(colon - s);
    if (n >= 2 && host[0] == '[' && host[n - 1] == ']') {
        host++;
        n -= 2;
    } else if (memchr(host, ':', n)) {
        return SH_FAIL(err, SH_E_INVALID,
                       "the address \"tcp:%.100s\" has an IPv6 host: write it as [host]:port", s);
    }
    if (n >= sizeof(out->host))
        return SH_FAIL(err, SH_E_INVALID, "the host in \"tcp:%.100s...\" is too long", s);
    if (n == 1 && host[0] == '*')
        n = 0;
    memcpy(out->host, host, n);
    out->host[n] = '\0';
    snprintf(out->port, sizeof(out->port), "%d", (int)port);
    return SH_OK;
}

int sh_wire__parse(const char *addr, struct sh_wire__target *out, struct sh_err *err)
{
    *out = (struct sh_wire__target){0};
    if (addr && strncmp(addr, "unix:", 5) == 0)
        return parse_unix(addr + 5, out, err);
    if (addr && strncmp(addr, "tcp:", 4) == 0)
        return parse_tcp(addr + 4, out, err);
    return SH_FAIL(err, SH_E_INVALID,
                   "the address \"%.100s\" must be \"unix:/path\" or \"tcp:host:port\"",
                   addr ? addr : "");
}

bool sh_wire_is_loopback(const char *host)
{
    static const char NAME[] = "localhost", BELOW[] = ".localhost";
    size_t n = strlen(host), m = sizeof(BELOW) - 1;
    struct in6_addr v6;
    struct in_addr v4;

    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
    return strcasecmp(host, NAME) == 0 || (n > m && strcasecmp(host + n - m, BELOW) == 0);
}

int sh_wire_absolute(const char *addr, char **out, struct sh_err *err)
{
    struct sh_wire__target t;
    int rc = sh_wire__parse(addr, &t, err);

    *out = NULL;
    if (rc)
        return rc;
    return t.is_unix ? sh_asprintf(err, out, "unix:%s", t.host) : sh_strdup(addr, out, err);
}

/* Returns a getaddrinfo code. */
static int look_up_host(const struct sh_wire__target *t, int flags, struct sh_wire__addrs *out)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int gai = getaddrinfo(t->host[0] ? t->host : NULL, t->port, &hints, &list);

    out->n = 0;
    if (gai)
        return gai;
    for (struct addrinfo *a = list; a && out->n < SH_WIRE__MAX_ADDRS; a = a->ai_next) {
        struct sh_wire__addr *to = &out->list[out->n++];

        memcpy(&to->sa, a->ai_addr, a->ai_addrlen);
        to->len = a->ai_addrlen;
    }
    freeaddrinfo(list);
    return 0;
}

static int fail_lookup(int gai, const char *host, struct sh_err *err)
{
    if (gai == EAI_MEMORY)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate addresses");
    return SH_FAIL(err, SH_E_UNAVAILABLE, "could not find the host \"%.100s\": %s", host,
                   gai_strerror(gai));
}

int sh_wire__resolve_now(const struct sh_wire__target *t, struct sh_wire__addrs *out,
                         struct sh_err *err)
{
    struct sockaddr_un *un;
    int gai;

    out->n = 0;
    if (t->is_unix) {
        out->list[0] = (struct sh_wire__addr){.len = sizeof(*un)};
        un = (struct sockaddr_un *)&out->list[0].sa;
        un->sun_family = AF_UNIX;
        sh_strlcpy(un->sun_path, t->host, sizeof(un->sun_path)); /* length checked when parsed */
        out->n = 1;
        return SH_OK;
    }
    gai = look_up_host(t, AI_NUMERICHOST, out);
    if (gai && gai != EAI_NONAME)
        return fail_lookup(gai, t->host, err);
    return SH_OK;
}

struct sh_wire__lookup {
    struct sh_wire__target target;
    struct sh_wire__addrs addrs;
    int gai;
    int fd;          /* eventfd */
    atomic_int refs; /* the thread and the owner: whoever ends last frees */
};

static void unref_lookup(struct sh_wire__lookup *k)
{
    if (atomic_fetch_sub(&k->refs, 1) > 1)
        return;
    close(k->fd);
    free(k);
}

static void *lookup_main(void *arg)
{
    static const uint64_t one = 1;
    struct sh_wire__lookup *k = arg;
    ssize_t n;

    k->gai = look_up_host(&k->target, AI_ADDRCONFIG, &k->addrs);
    n = write(k->fd, &one, sizeof(one)); /* also makes the result visible to the reader */
    (void)n;
    unref_lookup(k);
    return NULL;
}

int sh_wire__lookup_start(const struct sh_wire__target *t, struct sh_wire__lookup **out,
                          struct sh_err *err)
{
    struct sh_wire__lookup *k;
    pthread_t id;
    int e;

    *out = NULL;
    k = calloc(1, sizeof(*k));
    if (!k)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a name lookup");
    k->target = *t;
    atomic_init(&k->refs, 2);
    k->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (k->fd < 0) {
        free(k);
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not open a descriptor for a name lookup");
    }
    e = sh_thread_start(&id, lookup_main, k);
    if (e) {
        close(k->fd);
        free(k);
        errno = e;
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not start a thread for a name lookup");
    }
    pthread_detach(id);
    *out = k;
    return SH_OK;
}

int sh_wire__lookup_fd(const struct sh_wire__lookup *k)
{
    return k->fd;
}

int sh_wire__lookup_take(struct sh_wire__lookup *k, struct sh_wire__addrs *out, struct sh_err *err)
{
    uint64_t n;

    if (read(k->fd, &n, sizeof(n)) < 0)
        return SH_FAIL(err, SH_E_BUG, "the name lookup is not finished");
    if (k->gai)
        return fail_lookup(k->gai, k->target.host, err);
    *out = k->addrs;
    return SH_OK;
}

void sh_wire__lookup_free(struct sh_wire__lookup *k)
{
    if (k)
        unref_lookup(k);
}

/* ---------------------------------------------------------------- listen */

/* Two processes that start together must not unlink each other's fresh socket, so the check and
 * the bind happen under a lock of the folder. Fails: SH_E_TIMEOUT. */
static int lock_folder(const char *path, int *fd_out, struct sh_err *err)
{
    char copy[256];
    int fd;

    sh_strlcpy(copy, path, sizeof(copy));
    fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not open the folder of the socket %s", path);
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            *fd_out = fd;
            return SH_OK;
        }
        poll(NULL, 0, LOCK_WAIT_MS);
    }
    close(fd);
    return SH_FAIL(err, SH_E_TIMEOUT, "could not lock the folder of the socket %s", path);
}

/* Removes what a dead process left behind. Fails: SH_E_CONFLICT if somebody answers there. */
static int remove_stale(const struct sh_wire__addr *a, const char *path, struct sh_err *err)
{
    struct sh_err probe = {0};
    struct stat st;
    bool pending;
    int fd = -1, rc;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? SH_OK : SH_FAIL_ERRNO(err, SH_E_IO, "could not look at %s", path);
    if (!S_ISSOCK(st.st_mode))
        return SH_FAIL(err, SH_E_CONFLICT, "%s exists and is not a socket", path);
    rc = sh_wire__connect_start(a, &fd, &pending, &probe);
    if (fd >= 0)
        close(fd);
    if (!rc || probe.native == EAGAIN) /* EAGAIN: alive, with a full backlog */
        return SH_FAIL(err, SH_E_CONFLICT, "another process already listens on %s", path);
    if (probe.native != ECONNREFUSED)
        return SH_FAIL(err, SH_E_CONFLICT, "%s exists and it is not known whether it is in use: %s",
                       path, probe.detail);
    if (unlink(path) < 0 && errno != ENOENT)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not remove the stale socket %s", path);
    return SH_OK;
}

static int bind_and_listen(const struct sh_wire__addr *a, const char *addr, int *fd_out,
                           struct sh_err *err)
{
    const struct sockaddr *sa = (const struct sockaddr *)&a->sa;
    static const int on = 1;
    int fd = -1, rc = SH_OK;

    fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not open a socket for %s", addr);
        goto out;
    }
    if (sa->sa_family == AF_UNIX)
        fchmod(fd, SOCKET_MODE); /* before bind: the path never exists with another mode */
    else
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, sa, a->len) < 0) {
        rc = SH_FAIL_ERRNO(err, errno == EADDRINUSE ? SH_E_CONFLICT : SH_E_IO,
                           "could not bind to %s", addr);
        goto out;
    }
    if (listen(fd, BACKLOG) < 0) {
        rc = SH_FAIL_ERRNO(err, errno == EADDRINUSE ? SH_E_CONFLICT : SH_E_IO,
                           "could not listen on %s", addr);
        goto out;
    }
    *fd_out = fd;
    fd = -1;
out:
    if (fd >= 0)
        close(fd);
    return rc;
}

static int listen_unix(const struct sh_wire__target *t, const char *addr, int *fd_out,
                       struct sh_err *err)
{
    struct sh_wire__addrs addrs;
    int lock = -1, rc;

    rc = sh_wire__resolve_now(t, &addrs, err);
    if (!rc)
        rc = lock_folder(t->host, &lock, err);
    if (!rc)
        rc = remove_stale(&addrs.list[0], t->host, err);
    if (!rc)
        rc = bind_and_listen(&addrs.list[0], addr, fd_out, err);
    if (lock >= 0)
        close(lock);
    return rc;
}

int sh_wire_listen(const char *addr, int *fd_out, struct sh_err *err)
{
    struct sh_wire__target t;
    struct sh_wire__addrs addrs;
    int gai, rc;

    *fd_out = -1;
    rc = sh_wire__parse(addr, &t, err);
    if (rc)
        return rc;
    if (t.is_unix)
        return listen_unix(&t, addr, fd_out, err);
    gai = look_up_host(&t, AI_PASSIVE, &addrs);
    if (gai)
        return fail_lookup(gai, t.host, err);
    return bind_and_listen(&addrs.list[0], addr, fd_out, err);
}

int sh_wire_port(int listen_fd)
{
    struct sockaddr_storage sa = {0};
    socklen_t n = sizeof(sa);

    if (getsockname(listen_fd, (struct sockaddr *)&sa, &n) < 0)
        return 0;
    if (sa.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&sa)->sin6_port);
    return sa.ss_family == AF_INET ? ntohs(((struct sockaddr_in *)&sa)->sin_port) : 0;
}

/* ---------------------------------------------------------------- connect */

int sh_wire__connect_start(const struct sh_wire__addr *a, int *fd_out, bool *pending,
                           struct sh_err *err)
{
    const struct sockaddr *sa = (const struct sockaddr *)&a->sa;
    int fd, e;

    *fd_out = -1;
    *pending = false;
    fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not open a socket");
    if (connect(fd, sa, a->len) < 0 && errno != EINPROGRESS && errno != EINTR) {
        e = errno;
        close(fd);
        errno = e;
        return SH_FAIL_ERRNO(err, SH_E_UNAVAILABLE, "could not connect");
    } else if (sa->sa_family != AF_UNIX) {
        *pending = true; /* also when done: connect_end has one more check */
    }
    *fd_out = fd;
    return SH_OK;
}

/* Connecting to a free port of the own host can, by the rules of TCP, meet itself. */
static bool is_self(int fd)
{
    struct sockaddr_storage a = {0}, b = {0};
    socklen_t na = sizeof(a), nb = sizeof(b);

    return getsockname(fd, (struct sockaddr *)&a, &na) == 0 &&
           getpeername(fd, (struct sockaddr *)&b, &nb) == 0 && na == nb && memcmp(&a, &b, na) == 0;
}

int sh_wire__connect_end(int fd, struct sh_err *err)
{
    int e = 0;
    socklen_t n = sizeof(e);

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n) < 0)
        e = errno;
    if (!e && is_self(fd))
        e = ECONNREFUSED;
    if (!e)
        return SH_OK;
    errno = e;
    return SH_FAIL_ERRNO(err, SH_E_UNAVAILABLE, "could not connect");
}
