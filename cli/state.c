/* state.c - see state.h. */
#include "cli/state.h"

#include "common/hash.h"
#include "common/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MARK "created-by-shunt"
#define MAX_SYSTEM (1u << 20)
#define LONGEST_SOCKET "executor-XXXXXXXXXXXX.sock"

/* ---------------------------------------------------------------- paths */

static int absolute(const char *dir, char **out, struct sh_err *err)
{
    char *cwd = NULL;
    int rc;

    if (dir[0] == '/')
        return sh_strdup(dir, out, err);
    cwd = getcwd(NULL, 0);
    if (!cwd)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not find the current folder: %m");
    rc = sh_asprintf(err, out, "%s/%s", cwd, dir);
    free(cwd);
    return rc;
}

static int resolve(const char *dir, bool create, char **out, struct sh_err *err)
{
    char *path = NULL, *mark = NULL;
    int rc = absolute(dir, &path, err);

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
        rc = sh_asprintf(err, &mark, "%s/" MARK, *out);
    if (!rc && create && access(mark, F_OK) != 0)
        rc = file_write(mark, "", 0, 0644, err);
    if (rc) {
        free(*out);
        *out = NULL;
    }
out:
    free(path);
    free(mark);
    return rc;
}

static int name_aux(struct state *s, struct sh_err *err)
{
    uint8_t sha[SH_SHA256_BYTES];
    char hex[SH_SHA256_HEX];
    int rc = sh_sha256(s->dir, strlen(s->dir), sha, err);

    sh_hex(sha, sizeof(sha), hex);
    hex[12] = '\0';
    return rc ? rc : sh_asprintf(err, &s->aux, "/var/tmp/shunt-%s", hex);
}

int state_open(const char *dir, bool create, struct state *out, struct sh_err *err)
{
    char *log = NULL;
    bool is_short;
    int rc;

    *out = (struct state){0};
    rc = resolve(dir, create, &out->dir, err);
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
    char *path = NULL, *text = NULL;
    int rc = sh_asprintf(err, &path, "%s/system.json", s->run);

    if (!rc)
        rc = sh_json_dump(system, &text, err);
    if (!rc)
        rc = file_write(path, text, strlen(text), 0644, err);
    free(path);
    free(text);
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

/* ---------------------------------------------------------------- cleaning up */

static int remove_files(const char *dir, const char *keep, struct sh_err *err)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int rc = SH_OK;

    while (d && !rc && (e = readdir(d)) != NULL) {
        char *path = NULL;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            strcmp(e->d_name, keep) == 0)
            continue;
        rc = sh_asprintf(err, &path, "%s/%s", dir, e->d_name);
        if (!rc)
            rc = file_remove_tree(path, err);
        free(path);
    }
    if (d)
        closedir(d);
    return rc;
}

int state_clear_run(const struct state *s, struct sh_err *err)
{
    char *sockets = NULL;
    int rc = remove_files(s->run, "up.lock", err);

    if (!rc)
        rc = sh_asprintf(err, &sockets, "%s/run", s->aux);
    if (!rc)
        rc = file_remove_tree(sockets, err);
    if (!rc)
        rmdir(s->aux); /* stays if it holds the cluster */
    free(sockets);
    return rc;
}

int state_purge(const struct state *s, struct sh_err *err)
{
    static const char *const OURS[] = {"pg",   "run",       "log",        "blobs",    "jobs",
                                       "demo", "demo.json", "prometheus", "admin.key"};
    char *path = NULL;
    int rc = state_path(s, MARK, &path, err);

    if (!rc && access(path, F_OK) != 0)
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "\"%s\" was not made by `shunt up`: nothing is removed there", s->dir);
    for (size_t i = 0; !rc && i < SH_ARRAY_LEN(OURS); i++) {
        char *below = NULL;

        rc = state_path(s, OURS[i], &below, err);
        if (!rc)
            rc = file_remove_tree(below, err);
        free(below);
    }
    if (!rc)
        rc = file_remove_tree(s->aux, err);
    if (!rc && unlink(path) != 0 && errno != ENOENT)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not remove \"%s\": %m", path);
    if (!rc)
        rmdir(s->dir); /* what is not ours keeps the folder */
    free(path);
    return rc;
}
