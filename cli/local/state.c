/* state.c - see state.h. */
#include "cli/local/state.h"

#include "cli/files/file.h"
#include "cli/local/claim.h"
#include "cli/text/out.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/mem.h"
#include "common/units.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_SYSTEM (1u << 20)
#define LOCK_WAIT_NS SH_S(5)
#define AUX_BEGIN "/var/tmp/shunt-"
#define AUX_HASH 12
#define LONGEST_SOCKET "executor-XXXXXXXXXXXX.sock"

/* ---------------------------------------------------------------- paths */

static bool is_empty(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    size_t n = 0;

    if (!d)
        return false;
    while ((e = readdir(d)) != NULL)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n == 0;
}

/* Marks an empty folder. The mark is there before anything else of ours, and appears at once. */
static int make_mark(const char *dir, struct sh_err *err)
{
    char *mark = NULL;
    bool was_empty = is_empty(dir); /* asked first: another `shunt up` may mark and fill it now */
    int fd, rc = sh_asprintf(err, &mark, "%s/" STATE_MARK, dir);

    if (rc || access(mark, F_OK) == 0)
        goto out;
    if (!was_empty) {
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "the folder \"%s\" holds something that `shunt up` did not make; name "
                     "another with --state-dir",
                     dir);
        goto out;
    }
    fd = open(mark, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write \"%s\": %m", mark);
    else
        close(fd);
out:
    free(mark);
    return rc;
}

static int resolve_dir(const char *dir, bool create, char **out, struct sh_err *err)
{
    char *path = NULL;
    int rc = file_absolute(dir, &path, err);

    *out = NULL;
    if (!rc && create)
        rc = file_make_dir(path, 0755, err);
    if (rc)
        goto out;
    *out = realpath(path, NULL);
    if (!*out) {
        rc = SH_FAIL_ERRNO(err, errno == ENOENT ? SH_E_NOTFOUND : SH_E_IO,
                           "there is no state folder \"%s\"; `shunt up` makes one", dir);
        goto out;
    }
    if (create)
        rc = make_mark(*out, err);
    if (rc) {
        free(*out);
        *out = NULL;
    }
out:
    free(path);
    return rc;
}

static void read_id(struct state *s)
{
    char *mark = NULL, *text = NULL;
    size_t len = 0;

    s->id[0] = '\0';
    if (sh_asprintf(NULL, &mark, "%s/" STATE_MARK, s->dir) == SH_OK &&
        file_read(mark, 256, &text, &len, NULL) == SH_OK &&
        strspn(text, "0123456789abcdef") == STATE_ID_MAX - 1)
        snprintf(s->id, sizeof(s->id), "%.*s", STATE_ID_MAX - 1, text);
    free(mark);
    free(text);
}

int state_give_id(struct state *s, struct sh_err *err)
{
    uint8_t random[(STATE_ID_MAX - 1) / 2];
    char *mark = NULL, text[STATE_ID_MAX + 1];
    int rc = s->id[0] ? SH_OK : sh_random(random, sizeof(random), err);

    if (rc || s->id[0])
        return rc;
    sh_hex(random, sizeof(random), s->id);
    snprintf(text, sizeof(text), "%s\n", s->id);
    rc = state_path(s, STATE_MARK, &mark, err);
    if (!rc)
        rc = file_write(mark, text, strlen(text), 0644, err);
    free(mark);
    return rc;
}

static bool has_entries(const struct state *s, const char *below)
{
    char *path = NULL;
    bool has =
        state_path(s, below, &path, NULL) == SH_OK && access(path, F_OK) == 0 && !is_empty(path);

    free(path);
    return has;
}

bool state_had_system(const struct state *s)
{
    static const char *const FILES[] = {"admin.key", "run/system.json"};
    static const char *const FOLDERS[] = {"blobs/packages", "blobs/datasets", "jobs"};
    bool had = false;

    for (size_t i = 0; !had && i < SH_ARRAY_LEN(FILES); i++)
        had = state_has(s, FILES[i]);
    for (size_t i = 0; !had && i < SH_ARRAY_LEN(FOLDERS); i++)
        had = has_entries(s, FOLDERS[i]);
    return had;
}

static int name_aux(struct state *s, struct sh_err *err)
{
    uint8_t sha[SH_SHA256_BYTES];
    char hex[SH_SHA256_HEX];
    int rc = sh_sha256(s->dir, strlen(s->dir), sha, err);

    sh_hex(sha, sizeof(sha), hex);
    hex[AUX_HASH] = '\0';
    return rc ? rc : sh_asprintf(err, &s->aux, AUX_BEGIN "%s", hex);
}

int state_open(const char *dir, bool create, struct state *out, struct sh_err *err)
{
    char *log = NULL;
    bool is_short;
    int rc;

    *out = (struct state){0};
    rc = resolve_dir(dir, create, &out->dir, err);
    if (!rc)
        read_id(out);
    if (!rc)
        rc = name_aux(out, err);
    if (!rc)
        rc = sh_asprintf(err, &out->run, "%s/run", out->dir);
    if (rc)
        goto out;
    is_short = strlen(out->run) + sizeof("/" LONGEST_SOCKET) <=
               sizeof(((struct sockaddr_un *)NULL)->sun_path);
    rc = sh_asprintf(err, &out->sock, "%s%s", is_short ? out->run : out->aux,
                     is_short ? "" : "/run");
    if (!rc)
        rc = sh_asprintf(err, &log, "%s/log", out->dir);
    if (!rc && create)
        rc = file_make_dir(out->run, 0755, err);
    if (!rc && create)
        rc = file_make_dir(log, 0755, err);
out:
    free(log);
    if (rc)
        state_close(out);
    return rc;
}

void state_close(struct state *s)
{
    free(s->dir);
    free(s->run);
    free(s->aux);
    free(s->sock);
    *s = (struct state){0};
}

int state_path(const struct state *s, const char *below, char **out, struct sh_err *err)
{
    return sh_asprintf(err, out, "%s/%s", s->dir, below);
}

bool state_has(const struct state *s, const char *below)
{
    char *path = NULL;
    bool has = state_path(s, below, &path, NULL) == SH_OK && access(path, F_OK) == 0;

    free(path);
    return has;
}

int state_check_mark(const struct state *s, struct sh_err *err)
{
    char *mark = NULL;
    int rc = state_path(s, STATE_MARK, &mark, err);

    if (!rc && access(mark, F_OK) != 0)
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "\"%s\" was not made by `shunt up`: nothing is removed or stopped there",
                     s->dir);
    free(mark);
    return rc;
}

/* *path: OWNED, free(). *fd: OWNED; -1: it failed. */
static int open_lock(const struct state *s, const char *name, mode_t mode, char **path, int *fd,
                     struct sh_err *err)
{
    int rc = sh_asprintf(err, path, "%s/%s", s->run, name);

    *fd = rc ? -1 : open(*path, O_RDWR | O_CREAT | O_CLOEXEC, mode);
    return rc || *fd >= 0 ? rc : SH_FAIL_ERRNO(err, SH_E_IO, "could not open \"%s\": %m", *path);
}

int state_lock_backup(const struct state *s, int *fd, struct sh_err *err)
{
    const struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char *path = NULL;
    int rc = open_lock(s, "backup.lock", 0600, &path, fd, err);

    if (!rc && fcntl(*fd, F_SETLK, &whole) != 0) /* flock() would be its children's, too */
        rc = errno == EACCES || errno == EAGAIN
                 ? SH_FAIL(err, SH_E_CONFLICT, "another `shunt backup` of this system is at work")
                 : SH_FAIL_ERRNO(err, SH_E_IO, "could not lock \"%s\": %m", path);
    free(path);
    if (rc && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    return rc;
}

int state_lock(const struct state *s, int *fd, struct sh_err *err)
{
    int64_t end = sh_clock_ns() + LOCK_WAIT_NS;
    char *path = NULL;
    struct stat st;
    int rc = open_lock(s, "up.lock", 0644, &path, fd, err);

    while (!rc && flock(*fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not lock \"%s\": %m", path);
        else if (sh_clock_ns() > end)
            rc = SH_FAIL(err, SH_E_CONFLICT,
                         "another `shunt up`, `down`, `backup` or `restore` is at work in this "
                         "state folder");
        else
            cli_sleep_ms(50);
    }
    if (!rc && (fstat(*fd, &st) != 0 || st.st_nlink == 0))
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "another `shunt down --purge` has removed \"%s\" meanwhile", s->dir);
    if (rc && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    free(path);
    return rc;
}

/* ---------------------------------------------------------------- aux */

/* Its parent is sticky: once it is ours alone, nobody else can change what it leads to. */
static bool is_ours_alone(const struct stat *st)
{
    return S_ISDIR(st->st_mode) && st->st_uid == geteuid() &&
           ((st->st_mode & 07777) == 0700 || (st->st_mode & 07777) == 0711);
}

int state_check_aux(const struct state *s, struct sh_err *err)
{
    struct stat st;

    if (lstat(s->aux, &st) != 0)
        return SH_FAIL_ERRNO(err, errno == ENOENT ? SH_E_NOTFOUND : SH_E_IO,
                             "could not look at \"%s\": %m", s->aux);
    if (!is_ours_alone(&st))
        return SH_FAIL(err, SH_E_CONFLICT,
                       "\"%s\" is not a folder of this user alone (mode 0711): it is not used; "
                       "remove it, or name another --state-dir",
                       s->aux);
    return SH_OK;
}

int state_make_aux(const struct state *s, struct sh_err *err)
{
    bool is_new = mkdir(s->aux, 0711) == 0;

    if (!is_new && errno != EEXIST)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not make the folder \"%s\": %m", s->aux);
    if (is_new && chmod(s->aux, 0711) != 0) /* whatever the umask is */
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not prepare the folder \"%s\": %m", s->aux);
    return state_check_aux(s, err);
}

static bool has_sockets_in_aux(const struct state *s)
{
    return strcmp(s->sock, s->run) != 0;
}

int state_make_sock(const struct state *s, struct sh_err *err)
{
    int rc = has_sockets_in_aux(s) ? state_make_aux(s, err) : SH_OK;

    return rc ? rc : file_make_dir(s->sock, 0755, err);
}

/* ---------------------------------------------------------------- pids */

/* Start time of a process in ticks since boot; 0 if it is gone or only waits to be collected. */
static uint64_t start_of(pid_t pid)
{
    char path[64], text[1024], state = '?';
    unsigned long long start = 0;
    const char *p;
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    p = strrchr(text, ')'); /* the name before may hold anything */
    if (!p || sscanf(p + 1,
                     " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                     "%*d %llu",
                     &state, &start) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : start;
}

static int pid_path(const struct state *s, const char *name, char **out, struct sh_err *err)
{
    return sh_asprintf(err, out, "%s/%s.pid", s->run, name);
}

int state_pid_write(const struct state *s, const char *name, pid_t pid, struct sh_err *err)
{
    char *path = NULL, text[64];
    int rc = pid_path(s, name, &path, err);
    int n = snprintf(text, sizeof(text), "%d %" PRIu64 "\n", (int)pid, start_of(pid));

    if (!rc)
        rc = file_write(path, text, (size_t)n, 0644, err);
    free(path);
    return rc;
}

pid_t state_pid(const struct state *s, const char *name)
{
    char *path = NULL, *text = NULL;
    unsigned long long start = 0;
    size_t len = 0;
    int pid = 0;

    if (pid_path(s, name, &path, NULL) != SH_OK ||
        file_read(path, 256, &text, &len, NULL) != SH_OK ||
        sscanf(text, "%d %llu", &pid, &start) != 2 || pid < 1 || start == 0 ||
        start_of(pid) != start)
        pid = 0;
    free(path);
    free(text);
    return pid;
}

bool state_is_running(const struct state *s, const char *name, pid_t pid)
{
    return pid > 0 && state_pid(s, name) == pid;
}

void state_pid_remove(const struct state *s, const char *name)
{
    char *path = NULL;

    if (pid_path(s, name, &path, NULL) == SH_OK)
        unlink(path);
    free(path);
}

/* ---------------------------------------------------------------- system.json */

int state_read_system(const struct state *s, json_t **out, struct sh_err *err)
{
    char *path = NULL;
    int rc = sh_asprintf(err, &path, "%s/system.json", s->run);

    *out = NULL;
    if (!rc && access(path, F_OK) == 0)
        rc = sh_json_load_file(path, MAX_SYSTEM, out, err);
    free(path);
    return rc;
}

int state_write_system(const struct state *s, const json_t *system, struct sh_err *err)
{
    char *path = NULL;
    int rc = sh_asprintf(err, &path, "%s/system.json", s->run);

    if (!rc)
        rc = file_write_json(path, system, 0644, err);
    free(path);
    return rc;
}

int state_server(const char *dir, char **out, struct sh_err *err)
{
    struct state s;
    json_t *system = NULL;
    const char *url;
    int rc = state_open(dir, false, &s, NULL);

    *out = NULL;
    if (rc)
        return SH_OK; /* no folder, no system */
    rc = state_read_system(&s, &system, err);
    url = json_string_value(json_object_get(system, "server"));
    if (!rc && url)
        rc = sh_strdup(url, out, err);
    json_decref(system);
    state_close(&s);
    return rc;
}

void state_metrics_url(const char *host, int port, char out[static STATE_URL_MAX])
{
    snprintf(out, STATE_URL_MAX, "http://%s:%d/metrics", host ? host : "127.0.0.1", port);
}

/* ---------------------------------------------------------------- cleaning up */

bool state_is_process(const char *name)
{
    static const char *const NAMES[] = {STATE_SUPERVISOR, "initdb",    "postgres",
                                        "migrate",        "scheduler", "api"};

    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++)
        if (strcmp(name, NAMES[i]) == 0)
            return true;
    return strncmp(name, "executor-", strlen("executor-")) == 0;
}

/* A socket, a pid file, system.json, or what an interrupted write of one of them left. */
static bool is_run_file(const char *name)
{
    char stem[64];
    const char *dot = strchr(name, '.');
    size_t n = dot ? (size_t)(dot - name) : 0;

    if (n == 0 || n >= sizeof(stem))
        return false;
    memcpy(stem, name, n);
    stem[n] = '\0';
    if (strcmp(stem, "system") == 0)
        return strncmp(dot, ".json", 5) == 0 && (!dot[5] || dot[5] == '.');
    return state_is_process(stem) &&
           (strcmp(dot, ".sock") == 0 || strcmp(dot, ".pid") == 0 || strncmp(dot, ".pid.", 5) == 0);
}

static int clear_dir(const char *dir, struct sh_err *err)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int rc = SH_OK;

    while (d && !rc && (e = readdir(d)) != NULL)
        if (is_run_file(e->d_name) && unlinkat(dirfd(d), e->d_name, 0) != 0 && errno != ENOENT)
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not remove \"%s/%s\": %m", dir, e->d_name);
    if (d)
        closedir(d);
    return rc;
}

int state_clear_run(const struct state *s, struct sh_err *err)
{
    struct sh_err aux = {0};
    int rc = clear_dir(s->run, err);

    if (rc || !has_sockets_in_aux(s))
        return rc;
    rc = state_check_aux(s, &aux);
    if (rc)
        return rc == SH_E_NOTFOUND ? SH_OK : sh_err_copy(err, &aux);
    rc = clear_dir(s->sock, err);
    if (!rc) {
        rmdir(s->sock);
        rmdir(s->aux); /* stays if it holds the cluster */
    }
    return rc;
}

/* One that is not ours fails only where this system would have used it. */
static int purge_aux(const struct state *s, const char *pg, struct sh_err *err)
{
    struct sh_err mine = {0};
    struct claim c;
    char *in_aux = NULL;
    struct stat st;
    int rc = sh_asprintf(err, &in_aux, "%s/pg", s->aux);

    if (rc)
        return rc;
    rc = state_check_aux(s, &mine);
    /* Where a folder was put in the place of another one, the cluster is still the other one's. */
    if (!rc && (claim_read(in_aux, &c, NULL) != SH_OK || !s->id[0] || strcmp(c.id, s->id) == 0))
        rc = file_remove_tree(s->aux, err);
    else if (rc == SH_E_NOTFOUND ||
             !(has_sockets_in_aux(s) || (lstat(pg, &st) == 0 && S_ISLNK(st.st_mode))))
        rc = SH_OK;
    else if (rc)
        rc = sh_err_copy(err, &mine);
    free(in_aux);
    return rc;
}

/* Where a link leads that was made for another name of the folder: "/var/tmp/shunt-<hash>". False:
 * it is no such link, or not ours to follow. */
static bool old_aux(const struct state *s, const char *pg, char *aux, size_t size)
{
    const size_t n = strlen(AUX_BEGIN), hash = AUX_HASH;
    struct stat st;
    ssize_t len = readlink(pg, aux, size - 1);

    if (len <= 0)
        return false;
    aux[len] = '\0';
    if (strncmp(aux, AUX_BEGIN, n) != 0 || strspn(aux + n, "0123456789abcdef") != hash ||
        strcmp(aux + n + hash, "/pg") != 0)
        return false;
    aux[n + hash] = '\0';
    return strcmp(aux, s->aux) != 0 && lstat(aux, &st) == 0 && is_ours_alone(&st);
}

/* The cluster of a folder that was renamed goes with it; that of the folder it is a copy of stays.
 * */
static int purge_old_aux(const struct state *s, const char *pg, char **left, struct sh_err *err)
{
    char aux[256], *cluster = NULL;
    struct claim c;
    int rc;

    if (!old_aux(s, pg, aux, sizeof(aux)))
        return SH_OK;
    rc = sh_asprintf(err, &cluster, "%s/pg", aux);
    if (!rc && claim_read(cluster, &c, NULL) == SH_OK && claim_is_ours(s, &c))
        rc = file_remove_tree(aux, err);
    else if (!rc && access(cluster, F_OK) == 0)
        rc = sh_strdup(aux, left, err);
    free(cluster);
    return rc;
}

/* What workers of GPUs measured, a folder for each executor: kernels-NAME. */
static int purge_kernels(const struct state *s, struct sh_err *err)
{
    DIR *d = opendir(s->dir);
    const struct dirent *e;
    int rc = SH_OK;

    while (d && !rc && (e = readdir(d))) {
        char *path = NULL;

        if (strncmp(e->d_name, "kernels-", strlen("kernels-")) != 0)
            continue;
        rc = state_path(s, e->d_name, &path, err);
        if (!rc)
            rc = file_remove_tree(path, err);
        free(path);
    }
    if (d)
        closedir(d);
    return rc;
}

int state_purge(const struct state *s, char **left, struct sh_err *err)
{
    static const char *const OURS[] = {"pg",          "run",           "log",           "blobs",
                                       "jobs",        "demo",          "kept",          "demo.json",
                                       "prometheus",  "admin.key",     "executor.key",  "usage",
                                       "cursor.key",  "backup.tmp",    "made-by-demo",  "shapes",
                                       STATE_LAST_UP, "database.dump", STATE_RESTORING, STATE_MARK};
    char *pg = NULL;
    int rc = state_check_mark(s, err);

    *left = NULL;
    if (!rc)
        rc = state_path(s, "pg", &pg, err);
    if (!rc)
        rc = purge_old_aux(s, pg, left, err);
    if (!rc)
        rc = purge_aux(s, pg, err);
    if (!rc)
        rc = purge_kernels(s, err);
    for (size_t i = 0; !rc && i < SH_ARRAY_LEN(OURS); i++) { /* the mark is the last */
        char *below = NULL;

        rc = state_path(s, OURS[i], &below, err);
        if (!rc)
            rc = file_remove_tree(below, err);
        free(below);
    }
    if (!rc)
        rmdir(s->dir); /* what is not ours keeps the folder */
    free(pg);
    return rc;
}
