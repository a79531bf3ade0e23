/* pg.c - see pg.h. */
#include "cli/pg.h"

#include "common/buf.h"
#include "common/conf.h"
#include "common/mem.h"
#include "common/spawn.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_URL 512
#define SOCKET_NAME ".s.PGSQL.5432"
#define LOCK_SUFFIX ".lock" /* PostgreSQL makes a file of this name beside the socket */

struct owner {
    uid_t uid;
    gid_t gid;
    bool is_other; /* not who we are: setpriv is needed */
};

static int find_owner(struct owner *out, struct sh_err *err)
{
    const struct passwd *pw;

    *out = (struct owner){.uid = geteuid(), .gid = getegid()};
    if (out->uid != 0)
        return SH_OK;
    pw = getpwnam("postgres");
    if (!pw)
        pw = getpwnam("nobody");
    if (!pw || pw->pw_uid == 0)
        return SH_FAIL(err, SH_E_INVALID,
                       "PostgreSQL does not run as root and there is neither a user \"postgres\" "
                       "nor \"nobody\"; start as another user, or give --db-url");
    *out = (struct owner){.uid = pw->pw_uid, .gid = pw->pw_gid, .is_other = true};
    return SH_OK;
}

/* ---------------------------------------------------------------- programs */

/* May this user go through all folders above path? Link-free: path is a real path. */
static bool reaches(const struct owner *o, const char *path)
{
    char part[4096];
    struct stat st;

    if (!o->is_other)
        return true;
    if (!sh_strlcpy(part, path, sizeof(part)))
        return false;
    for (;;) {
        if (stat(part[0] ? part : "/", &st) != 0)
            return false;
        if (!(st.st_uid == o->uid   ? st.st_mode & 0100
              : st.st_gid == o->gid ? st.st_mode & 0010
                                    : st.st_mode & 0001))
            return false;
        if (!part[0])
            return true;
        *strrchr(part, '/') = '\0';
    }
}

struct search {
    const struct owner *o;
    char *out; /* the folder found, or "" */
    size_t size;
    char closed[512]; /* one that o cannot reach */
};

static bool has_server(const char *bin)
{
    char path[512];
    int n = snprintf(path, sizeof(path), "%s/initdb", bin);

    return n > 0 && (size_t)n < sizeof(path) && access(path, X_OK) == 0;
}

/* Takes the folder if there is a server in it that PostgreSQL's user can start. */
static bool take_bin(struct search *f, const char *bin)
{
    char *real = has_server(bin) ? realpath(bin, NULL) : NULL;
    bool ok = real && reaches(f->o, real);

    if (ok)
        ok = sh_strlcpy(f->out, real, f->size);
    else if (real)
        sh_strlcpy(f->closed, real, sizeof(f->closed));
    free(real);
    return ok;
}

/* The newest version below root, a folder laid out as /usr. */
static bool search_root(struct search *f, const char *root)
{
    char dir[4200], bin[4500];
    struct dirent *e;
    int best = -1;
    DIR *d;

    snprintf(dir, sizeof(dir), "%s/lib/postgresql", root);
    d = opendir(dir);
    while (d && (e = readdir(d)) != NULL) {
        int v = 0;

        snprintf(bin, sizeof(bin), "%s/%s/bin", dir, e->d_name);
        if (sscanf(e->d_name, "%d", &v) == 1 && v > best && take_bin(f, bin))
            best = v;
    }
    if (d)
        closedir(d);
    return best >= 0;
}

static bool search_path(struct search *f)
{
    char dir[512];

    for (const char *p = sh_conf_env("PATH"); p && *p;) {
        size_t n = strcspn(p, ":");

        if (n > 0 && n < sizeof(dir)) {
            memcpy(dir, p, n);
            dir[n] = '\0';
            if (take_bin(f, dir))
                return true;
        }
        p += n + (p[n] == ':');
    }
    return false;
}

/* The one of our own bundle, one of the system, one in PATH. */
static int find_bin(const char *given, const struct owner *o, char *out, size_t size,
                    struct sh_err *err)
{
    struct search f = {.o = o, .out = out, .size = size};
    char dir[4096], root[4200];
    int rc;

    out[0] = '\0';
    if (given && given[0]) {
        if (take_bin(&f, given))
            return SH_OK;
        if (!f.closed[0])
            return SH_FAIL(err, SH_E_INVALID, "there is no initdb in the folder \"%s\"", given);
    } else {
        rc = sh_self_dir(dir, sizeof(dir), err);
        if (rc)
            return rc;
        snprintf(root, sizeof(root), "%s/..", dir);
        if (search_root(&f, root) || search_root(&f, "/usr") || search_path(&f))
            return SH_OK;
    }
    if (f.closed[0])
        return SH_FAIL(err, SH_E_INVALID,
                       "PostgreSQL does not run as root, and the user it would run as (uid %u) "
                       "cannot reach \"%s\": put it in a folder that all may enter, such as /opt",
                       (unsigned)o->uid, f.closed);
    return SH_FAIL(err, SH_E_INVALID,
                   "no PostgreSQL server is installed: install the package postgresql, or give "
                   "--db-url");
}

/* ---------------------------------------------------------------- the folder */

static bool fits_socket(const char *dir)
{
    return strlen(dir) + sizeof("/" SOCKET_NAME LOCK_SUFFIX) <=
           sizeof(((struct sockaddr_un *)NULL)->sun_path);
}

static int make_cluster_dir(const struct state *s, const struct owner *o, const char *link,
                            const char *in_aux, struct sh_err *err)
{
    int rc;

    if (fits_socket(link) && reaches(o, s->dir))
        return file_make_dir(link, 0700, err);
    rc = state_make_aux(s, err);
    if (!rc)
        rc = file_make_dir(in_aux, 0700, err);
    if (!rc && symlink(in_aux, link) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make the link \"%s\": %m", link);
    return rc;
}

/* Only a real folder that is ours or PostgreSQL's already is given to PostgreSQL's user. */
static int hand_over(const struct owner *o, const char *dir, struct sh_err *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc = SH_OK;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not open the folder \"%s\": %m", dir);
    else if ((st.st_uid != geteuid() && st.st_uid != o->uid) || (st.st_mode & 022))
        rc =
            SH_FAIL(err, SH_E_CONFLICT, "the folder \"%s\" belongs to, or is open to, others", dir);
    else if (o->is_other && fchown(fd, o->uid, o->gid) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not prepare the folder \"%s\": %m", dir);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* *out: the real path of the cluster's folder, made if need be. */
static int make_dir(const struct state *s, const struct owner *o, char **out, struct sh_err *err)
{
    char *link = NULL, *in_aux = NULL, to[256] = "";
    bool is_link;
    int rc = state_path(s, "pg", &link, err);

    *out = NULL;
    if (!rc)
        rc = sh_asprintf(err, &in_aux, "%s/pg", s->aux);
    if (rc)
        goto out;
    if (readlink(link, to, sizeof(to) - 1) > 0 && access(link, F_OK) != 0)
        unlink(link); /* it leads nowhere */
    if (access(link, F_OK) != 0)
        rc = make_cluster_dir(s, o, link, in_aux, err);
    memset(to, 0, sizeof(to));
    is_link = readlink(link, to, sizeof(to) - 1) > 0;
    if (!rc && is_link && strcmp(to, in_aux) == 0)
        rc = state_check_aux(s, err);
    if (rc)
        goto out;
    if ((is_link && strcmp(to, in_aux) != 0) || !fits_socket(is_link ? in_aux : link) ||
        !reaches(o, is_link ? s->aux : s->dir)) {
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "the cluster in \"%s\" was made for another place of the state folder; move "
                     "it back, or `shunt down --purge` removes it",
                     link);
        goto out;
    }
    rc = hand_over(o, is_link ? in_aux : link, err);
    if (!rc)
        rc = sh_strdup(is_link ? in_aux : link, out, err);
out:
    free(link);
    free(in_aux);
    return rc;
}

/* ---------------------------------------------------------------- command lines */

struct line { /* a list of arguments that grows */
    char **argv;
    size_t n;
    int rc;
    struct sh_err *err;
};

__attribute__((format(printf, 2, 3))) static void add(struct line *l, const char *fmt, ...)
{
    char text[4500];
    va_list ap;

    if (l->rc)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (l->n + 1 >= PG_MAX_ARGS)
        l->rc = SH_FAIL(l->err, SH_E_BUG, "too many arguments for PostgreSQL");
    else
        l->rc = sh_strdup(text, &l->argv[l->n++], l->err);
}

static void add_owner(struct line *l, const struct owner *o)
{
    if (!o->is_other)
        return;
    add(l, "setpriv");
    add(l, "--reuid=%u", (unsigned)o->uid);
    add(l, "--regid=%u", (unsigned)o->gid);
    add(l, "--clear-groups");
    add(l, "--");
}

/* Small, as it serves a few connections of ours, and durable. */
static int postgres_line(struct pg *pg, const struct owner *o, const char *bin, struct sh_err *err)
{
    static const char *const SETTINGS[] = {"listen_addresses=",
                                           "unix_socket_permissions=0700",
                                           "port=5432",
                                           "fsync=on",
                                           "synchronous_commit=on",
                                           "max_connections=64",
                                           "shared_buffers=32MB",
                                           "work_mem=4MB",
                                           "maintenance_work_mem=32MB",
                                           "max_wal_size=256MB",
                                           "min_wal_size=32MB",
                                           "wal_level=minimal",
                                           "max_wal_senders=0",
                                           "jit=off",
                                           "max_parallel_workers=2",
                                           "logging_collector=off",
                                           "log_checkpoints=off",
                                           "log_min_messages=warning",
                                           "checkpoint_timeout=15min"};
    struct line l = {.argv = pg->postgres, .err = err};

    add_owner(&l, o);
    add(&l, "%s/postgres", bin);
    add(&l, "-D");
    add(&l, "%s/data", pg->dir);
    add(&l, "-k");
    add(&l, "%s", pg->dir);
    for (size_t i = 0; i < SH_ARRAY_LEN(SETTINGS); i++)
        add(&l, "--%s", SETTINGS[i]);
    return l.rc;
}

static int initdb_line(struct pg *pg, const struct owner *o, const char *bin, struct sh_err *err)
{
    struct line l = {.argv = pg->initdb, .err = err};

    add_owner(&l, o);
    add(&l, "%s/initdb", bin);
    add(&l, "-D");
    add(&l, "%s/data.new", pg->dir);
    add(&l, "--username=shunt");
    /* The socket lies in a folder that only this user and root can enter. */
    add(&l, "--auth=trust");
    add(&l, "--encoding=UTF8");
    add(&l, "--locale=C.UTF-8");
    add(&l, "--data-checksums");
    add(&l, "--no-instructions");
    return l.rc;
}

/* ---------------------------------------------------------------- */

static int make_url(const char *dir, char **out, struct sh_err *err)
{
    struct sh_buf b;
    int rc;

    sh_buf_init(&b, MAX_URL);
    rc = sh_buf_puts(&b, "postgresql://shunt@/postgres?host=", err);
    if (!rc)
        rc = sh_buf_escape(&b, dir, "/-._", err);
    if (!rc)
        *out = sh_buf_take(&b);
    sh_buf_fini(&b);
    return rc;
}

int pg_prepare(const struct state *s, const char *bin, struct pg *out, struct sh_err *err)
{
    char dir[512], *path = NULL;
    struct owner o;
    int rc;

    *out = (struct pg){0};
    rc = find_owner(&o, err);
    if (!rc)
        rc = find_bin(bin, &o, dir, sizeof(dir), err);
    if (!rc)
        rc = make_dir(s, &o, &out->dir, err);
    if (!rc)
        rc = make_url(out->dir, &out->url, err);
    if (!rc)
        rc = sh_asprintf(err, &out->socket, "%s/" SOCKET_NAME, out->dir);
    if (!rc)
        rc = initdb_line(out, &o, dir, err);
    if (!rc)
        rc = postgres_line(out, &o, dir, err);
    if (!rc)
        rc = sh_asprintf(err, &path, "%s/data/PG_VERSION", out->dir);
    if (!rc)
        out->is_new = access(path, F_OK) != 0;
    free(path);
    path = NULL;
    if (!rc)
        rc = sh_asprintf(err, &path, "%s/data.new", out->dir); /* left by an interrupted start */
    if (!rc)
        rc = file_remove_tree(path, err);
    free(path);
    if (rc)
        pg_fini(out);
    return rc;
}

int pg_adopt(struct pg *pg, struct sh_err *err)
{
    char *from = NULL, *to = NULL;
    int rc = sh_asprintf(err, &from, "%s/data.new", pg->dir);

    if (!rc)
        rc = sh_asprintf(err, &to, "%s/data", pg->dir);
    if (!rc && rename(from, to) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not put the new cluster in place: %m");
    if (!rc)
        pg->is_new = false;
    free(from);
    free(to);
    return rc;
}

bool pg_accepts(const struct pg *pg)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool ok = fd >= 0 && sh_strlcpy(a.sun_path, pg->socket, sizeof(a.sun_path)) &&
              connect(fd, (const struct sockaddr *)&a, sizeof(a)) == 0;

    if (fd >= 0)
        close(fd);
    return ok;
}

void pg_fini(struct pg *pg)
{
    for (size_t i = 0; i < PG_MAX_ARGS; i++) {
        free(pg->initdb[i]);
        free(pg->postgres[i]);
    }
    free(pg->dir);
    free(pg->url);
    free(pg->socket);
    *pg = (struct pg){0};
}
