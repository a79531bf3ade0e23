/* pg.c - see pg.h. */
#include "cli/local/pg.h"

#include "cli/files/file.h"
#include "cli/local/pg_int.h"
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
bool pg__reaches(const struct owner *o, const char *path)
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
    const char *program; /* that has to be in it */
    char *out;           /* the folder found, or "" */
    size_t size;
    char closed[512]; /* one that o cannot reach */
};

static bool has_program(const char *bin, const char *program)
{
    char path[512];
    int n = snprintf(path, sizeof(path), "%s/%s", bin, program);

    return n > 0 && (size_t)n < sizeof(path) && access(path, X_OK) == 0;
}

/* Takes the folder if there is a server in it that PostgreSQL's user can start. */
static bool take_bin(struct search *f, const char *bin)
{
    char *real = has_program(bin, f->program) ? realpath(bin, NULL) : NULL;
    bool ok = real && pg__reaches(f->o, real);

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
static int look_around(struct search *f, struct sh_err *err)
{
    char dir[4096], root[4200];
    int rc = sh_self_dir(dir, sizeof(dir), err);

    if (rc)
        return rc;
    snprintf(root, sizeof(root), "%s/..", dir);
    (void)(search_root(f, root) || search_root(f, "/usr") || search_path(f));
    return SH_OK;
}

static int find_bin(const char *given, const struct owner *o, char *out, size_t size,
                    struct sh_err *err)
{
    struct search f = {.o = o, .program = "initdb", .out = out, .size = size};
    int rc = SH_OK;

    out[0] = '\0';
    if (given && given[0]) {
        if (!take_bin(&f, given) && !f.closed[0])
            return SH_FAIL(err, SH_E_INVALID, "there is no initdb in the folder \"%s\"", given);
    } else {
        rc = look_around(&f, err);
    }
    if (rc || out[0])
        return rc;
    if (f.closed[0])
        return SH_FAIL(err, SH_E_INVALID,
                       "PostgreSQL does not run as root, and the user it would run as (uid %u) "
                       "cannot reach \"%s\": put it in a folder that all may enter, such as /opt",
                       (unsigned)o->uid, f.closed);
    return SH_FAIL(err, SH_E_INVALID,
                   "no PostgreSQL server is installed: install the package postgresql, or give "
                   "--db-url");
}

int pg_find_server(const char *given, char *out, size_t size, struct sh_err *err)
{
    struct owner o;
    int rc = find_owner(&o, err);

    return rc ? rc : find_bin(given, &o, out, size, err);
}

int pg_find_tools(const char *given, char *out, size_t size, struct sh_err *err)
{
    const struct owner self = {.uid = geteuid(), .gid = getegid()};
    struct search f = {.o = &self, .program = "pg_dump", .out = out, .size = size};
    int rc = SH_OK;

    out[0] = '\0';
    if (given && given[0])
        take_bin(&f, given);
    else
        rc = look_around(&f, err);
    if (rc || out[0])
        return rc;
    return SH_FAIL(err, SH_E_INVALID,
                   "pg_dump, pg_restore and psql are not found%s%s: install the package "
                   "postgresql-client, or name their folder with --pg-bin",
                   given ? " in " : "", given ? given : "");
}

/* ---------------------------------------------------------------- command lines */

struct line { /* a list of arguments that grows */
    char **argv;
    size_t n;
    int rc;
    struct sh_err *err;
};

__attribute__((format(printf, 2, 3))) static void add_option_line(struct line *l, const char *fmt,
                                                                  ...)
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
    add_option_line(l, "setpriv");
    add_option_line(l, "--reuid=%u", (unsigned)o->uid);
    add_option_line(l, "--regid=%u", (unsigned)o->gid);
    add_option_line(l, "--clear-groups");
    add_option_line(l, "--");
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
    add_option_line(&l, "%s/postgres", bin);
    add_option_line(&l, "-D");
    add_option_line(&l, "%s/data", pg->dir);
    add_option_line(&l, "-k");
    add_option_line(&l, "%s", pg->dir);
    for (size_t i = 0; i < SH_ARRAY_LEN(SETTINGS); i++)
        add_option_line(&l, "--%s", SETTINGS[i]);
    return l.rc;
}

static int initdb_line(struct pg *pg, const struct owner *o, const char *bin, struct sh_err *err)
{
    struct line l = {.argv = pg->initdb, .err = err};

    add_owner(&l, o);
    add_option_line(&l, "%s/initdb", bin);
    add_option_line(&l, "-D");
    add_option_line(&l, "%s/data.new", pg->dir);
    add_option_line(&l, "--username=shunt");
    /* The socket lies in a folder that only this user and root can enter. */
    add_option_line(&l, "--auth=trust");
    add_option_line(&l, "--encoding=UTF8");
    add_option_line(&l, "--locale=C.UTF-8");
    add_option_line(&l, "--data-checksums");
    add_option_line(&l, "--no-instructions");
    return l.rc;
}

/* ---------------------------------------------------------------- */

static int make_socket_url(const char *dir, char **out, struct sh_err *err)
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

int pg_prepare(const struct state *s, const char *bin, bool is_fresh, struct pg *out,
               struct sh_err *err)
{
    char dir[512], *path = NULL;
    struct owner o;
    int rc;

    *out = (struct pg){0};
    rc = find_owner(&o, err);
    if (!rc)
        rc = find_bin(bin, &o, dir, sizeof(dir), err);
    if (!rc)
        rc = sh_strdup(dir, &out->bin, err);
    if (!rc)
        rc = pg__place(s, &o, is_fresh, &out->dir, err);
    if (!rc)
        rc = make_socket_url(out->dir, &out->url, err);
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
    free(pg->bin);
    free(pg->dir);
    free(pg->url);
    free(pg->socket);
    *pg = (struct pg){0};
}
