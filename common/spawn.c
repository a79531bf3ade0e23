/* spawn.c - starts children with posix_spawn, and waits for them by pidfd.
 *
 * The child's descriptors are placed in two moves: each is first duplicated here to a number above
 * the child's range, then moved to its place in the child. So no move can overwrite the source of a
 * later one, whatever numbers the caller has.
 */
#include "common/spawn.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/units.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_FD 3
#define MAX_FDS 64
#define STOP_LOOK_MS 100
#define KILL_WAIT_MS \
    10000 /* SIGKILL acts at once, unless a driver holds the process in the kernel */
#define PARENT_ENV "SHUNT_SPAWN_PARENT="

struct prepared {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    bool have_actions, have_attr;
    int fds[MAX_FDS + 2]; /* duplicates, OWNED */
    size_t n_fds;
    char **env;      /* the array is OWNED, its strings are not */
    char parent[64]; /* PARENT_ENV and our pid */
    char path[4096];
};

int sh_self_dir(char *out, size_t size, struct sh_err *err)
{
    char path[4096], *slash;
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

    if (n < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not find our own program's folder");
    path[n] = '\0';
    slash = strrchr(path, '/');
    if (!slash)
        return SH_FAIL(err, SH_E_IO, "could not find our own program's folder");
    slash[slash == path ? 1 : 0] = '\0';
    if (!sh_strlcpy(out, path, size))
        return SH_FAIL(err, SH_E_TOOBIG, "the name of our own program's folder is too long");
    return SH_OK;
}

/* ---------------------------------------------------------------- cores */

/* The start of a small file as text; "" if it cannot be read. */
static void read_cgroup_text(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? sh_read_all(fd, out, size - 1) : 0;

    out[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

/* "QUOTA PERIOD" in us, so much time in each period. Not a number, or below 0: all there is. */
static unsigned cores_of_quota(unsigned n, const char *text)
{
    long long quota, period, cores;

    if (sscanf(text, "%lld %lld", &quota, &period) != 2 || quota < 0 || period <= 0)
        return n;
    cores = quota / period + (quota % period != 0);
    return cores < n ? SH_MAX((unsigned)cores, 1u) : n;
}

/* The text of one file, or of two, one behind the other. */
static void read_cgroup_quota(const char *folder, const char *const files[2], char *out,
                              size_t size)
{
    char file[4096 + 32];

    out[0] = '\0';
    for (int i = 0; i < 2 && files[i]; i++) {
        const size_t at = strlen(out);

        snprintf(file, sizeof(file), "%s/%s", folder, files[i]);
        read_cgroup_text(file, out + at, size - at);
    }
}

/* Each folder from the root down to ours has a limit of its own. */
static unsigned cores_down_to(unsigned n, const char *root, const char *own, const char *own_end,
                              const char *const files[2])
{
    char path[4096], text[64];

    if (snprintf(path, sizeof(path), "%s%.*s", root, (int)(own_end - own), own) >=
        (int)sizeof(path))
        return n;
    for (;;) {
        read_cgroup_quota(path, files, text, sizeof(text));
        n = cores_of_quota(n, text);
        if (strlen(path) <= strlen(root))
            return n;
        *strrchr(path, '/') = '\0';
    }
}

/* Is "cpu" in the list with commas that ends before `end`? */
static bool has_cpu(const char *list, const char *end)
{
    for (; list < end; list += strcspn(list, ",:") + 1)
        if (strcspn(list, ",:") == 3 && strncmp(list, "cpu", 3) == 0)
            return true;
    return false;
}

unsigned sh_cores_within(unsigned n, const char *root, const char *own)
{
    static const char *const V1[2] = {"cpu.cfs_quota_us", "cpu.cfs_period_us"};
    static const char *const V2[2] = {"cpu.max", NULL};
    const char *end;
    char cpu[4096];

    snprintf(cpu, sizeof(cpu), "%s/cpu", root);
    for (const char *line = own; *line; line = *end ? end + 1 : end) { /* number:list:path */
        const char *list, *path;

        end = line + strcspn(line, "\n");
        list = memchr(line, ':', (size_t)(end - line));
        path = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
        if (!path || path[1] != '/')
            continue;
        if (strncmp(line, "0::", 3) == 0)
            n = cores_down_to(n, root, path + 1, end, V2);
        else if (has_cpu(list + 1, path))
            n = cores_down_to(n, cpu, path + 1, end, V1);
    }
    return n;
}

unsigned sh_cores(void)
{
    char own[4096];
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

    read_cgroup_text("/proc/self/cgroup", own, sizeof(own));
    return sh_cores_within(SH_MAX(n, 1), "/sys/fs/cgroup", own);
}

/* ---------------------------------------------------------------- the child's environment */

/* Of sanitizers and test tools too: without its options a build with one behaves otherwise. */
#define ENV_SYSTEM                                                                                \
    "PATH", "HOME", "LANG", "LC_*", "TZ", "TMPDIR", "LD_*", "OMP_*", "GOMP_*", "KMP_*", "DNNL_*", \
        "ONEDNN_*", "MALLOC_*", "GLIBC_TUNABLES", "CUDA_*", "CUDNN_*", "CUBLAS*", "NVIDIA_*",     \
        "NV_*", "SHUNT_CUDA_*", "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"

const char *const SH_ENV_SYSTEM[] = {ENV_SYSTEM, NULL};
const char *const SH_ENV_DAEMON[] = {ENV_SYSTEM,        "!SHUNT_DB_URL", "!SHUNT_KEY",
                                     "!SHUNT_KEY_FILE", "SHUNT_*",       NULL};

static bool is_variable_kept(const char *entry, const char *const *keep)
{
    const size_t n = strcspn(entry, "=");

    for (; keep && *keep; keep++) {
        const char *name = *keep + (**keep == '!');
        size_t len = strlen(name);
        const bool is_prefix = len > 0 && name[len - 1] == '*';

        len -= is_prefix;
        if (strncmp(entry, name, len) == 0 && (is_prefix ? n >= len : n == len))
            return **keep != '!';
    }
    return !keep;
}

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");

    return strncmp(a, b, n) == 0 && b[n] == '=';
}

static bool is_replaced(const char *entry, const char *const *added)
{
    for (size_t i = 0; added && added[i]; i++)
        if (same_name(added[i], entry))
            return true;
    return same_name(PARENT_ENV, entry);
}

static int prepare_env(const struct sh_spawn *s, struct prepared *p, struct sh_err *err)
{
    size_t n_old = 0, n_new = 0, n = 0;

    while (environ && environ[n_old])
        n_old++;
    while (s->env && s->env[n_new])
        n_new++;
    p->env = calloc(n_old + n_new + 2, sizeof(*p->env));
    if (!p->env)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a child's environment");
    for (size_t i = 0; i < n_old; i++)
        if (!is_replaced(environ[i], s->env) && is_variable_kept(environ[i], s->keep))
            p->env[n++] = environ[i];
    for (size_t i = 0; i < n_new; i++)
        p->env[n++] = (char *)s->env[i];
    snprintf(p->parent, sizeof(p->parent), PARENT_ENV "%d", (int)getpid());
    p->env[n] = p->parent;
    return SH_OK;
}

/* Arranges that `fd` becomes `place` in the child. */
static int place_fd(struct prepared *p, int fd, int place, size_t n_places, struct sh_err *err)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FD + (int)n_places), e;

    if (copy < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not duplicate a descriptor for a child");
    p->fds[p->n_fds++] = copy;
    e = posix_spawn_file_actions_adddup2(&p->actions, copy, place);
    if (e)
        return SH_FAIL(err, SH_E_NOMEM, "could not prepare a child's descriptors");
    return SH_OK;
}

static int prepare_fds(const struct sh_spawn *s, struct prepared *p, struct sh_err *err)
{
    int rc = SH_OK, e;

    if (s->n_fds > MAX_FDS)
        return SH_FAIL(err, SH_E_TOOBIG, "a child takes at most %d descriptors", MAX_FDS);
    if (posix_spawn_file_actions_init(&p->actions) != 0)
        return SH_FAIL(err, SH_E_NOMEM, "could not prepare a child's descriptors");
    p->have_actions = true;
    if (s->stdout_fd >= 0)
        rc = place_fd(p, s->stdout_fd, STDOUT_FILENO, s->n_fds, err);
    if (!rc && s->stderr_fd >= 0)
        rc = place_fd(p, s->stderr_fd, STDERR_FILENO, s->n_fds, err);
    for (size_t i = 0; !rc && i < s->n_fds; i++)
        rc = place_fd(p, s->fds[i], FIRST_FD + (int)i, s->n_fds, err);
    if (rc)
        return rc;
    e = posix_spawn_file_actions_addopen(&p->actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!e)
        e = posix_spawn_file_actions_addclosefrom_np(&p->actions, FIRST_FD + (int)s->n_fds);
    if (e)
        return SH_FAIL(err, SH_E_NOMEM, "could not prepare a child's descriptors");
    return SH_OK;
}

/* The daemons block signals for signalfd and ignore SIGPIPE; a child starts with neither. */
static int prepare_signals(struct prepared *p, struct sh_err *err)
{
    sigset_t none, all;

    if (posix_spawnattr_init(&p->attr) != 0)
        return SH_FAIL(err, SH_E_NOMEM, "could not prepare a child's attributes");
    p->have_attr = true;
    sigemptyset(&none);
    sigfillset(&all);
    if (posix_spawnattr_setsigmask(&p->attr, &none) != 0 ||
        posix_spawnattr_setsigdefault(&p->attr, &all) != 0 ||
        posix_spawnattr_setflags(&p->attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) != 0)
        return SH_FAIL(err, SH_E_BUG, "could not prepare a child's signals");
    return SH_OK;
}

/* A bare name means the program installed beside ours; only then PATH counts. */
static void find_program(const char *name, struct prepared *p)
{
    char dir[3072];

    if (!strchr(name, '/') && sh_self_dir(dir, sizeof(dir), NULL) == SH_OK) {
        int n = snprintf(p->path, sizeof(p->path), "%s/%s", dir, name);

        if (n > 0 && (size_t)n < sizeof(p->path) && access(p->path, X_OK) == 0)
            return;
    }
    sh_strlcpy(p->path, name, sizeof(p->path));
}

static void prepared_fini(struct prepared *p)
{
    for (size_t i = 0; i < p->n_fds; i++)
        close(p->fds[i]);
    if (p->have_actions)
        posix_spawn_file_actions_destroy(&p->actions);
    if (p->have_attr)
        posix_spawnattr_destroy(&p->attr);
    free(p->env);
}

int sh_spawn(const struct sh_spawn *s, pid_t *pid_out, struct sh_err *err)
{
    struct prepared p = {.n_fds = 0};
    int rc;

    *pid_out = -1;
    rc = prepare_fds(s, &p, err);
    if (!rc)
        rc = prepare_signals(&p, err);
    if (!rc)
        rc = prepare_env(s, &p, err);
    if (rc)
        goto out;
    find_program(s->path, &p);
    errno = posix_spawnp(pid_out, p.path, &p.actions, &p.attr, (char *const *)s->argv, p.env);
    if (errno) {
        const char *base = strrchr(s->path, '/');

        *pid_out = -1;
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not start the program \"%s\"",
                           base ? base + 1 : s->path);
        sh_err_detail(err, "path %s", p.path);
    }
out:
    prepared_fini(&p);
    return rc;
}

int sh_spawn_child_init(struct sh_err *err)
{
    long parent = 0;

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not ask for a signal at the parent's death");
    /* The parent may have died before the call above. Comparing with 1 would not do: in a container
     * the parent itself may be process 1. */
    for (char **e = environ; e && *e; e++)
        if (strncmp(*e, PARENT_ENV, sizeof(PARENT_ENV) - 1) == 0)
            parent = strtol(*e + sizeof(PARENT_ENV) - 1, NULL, 10);
    if (parent > 0 && parent != (long)getppid())
        return SH_FAIL(err, SH_E_CANCELLED, "the process that started this one is gone");
    return SH_OK;
}

/* Reads what is there; *eof at the end of the stream. What is above max is read and dropped, so
 * that a talkative child does not hang in write(). */
static int drain_output(int fd, struct sh_buf *b, bool *eof, struct sh_err *err)
{
    char chunk[16384];

    for (int i = 0; i < 64; i++) { /* then look at the clock again */
        ssize_t n = read(fd, chunk, sizeof(chunk));
        int rc;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return SH_OK;
        if (n < 0)
            return SH_FAIL_ERRNO(err, SH_E_IO, "could not read a child's output");
        if (n == 0) {
            *eof = true;
            return SH_OK;
        }
        rc = sh_buf_append(b, chunk, SH_MIN((size_t)n, b->max - b->len), err);
        if (rc)
            return rc;
    }
    return SH_OK;
}

/* Until the child has ended. Its output may stay open longer, in a grandchild: that is not waited
 * for. */
static int collect_output(int out_fd, int pidfd, int64_t end_ns, const atomic_bool *stop,
                          struct sh_buf *b, struct sh_err *err)
{
    const int64_t look_ms = stop ? STOP_LOOK_MS : 60000;
    struct pollfd p[2] = {{.fd = pidfd, .events = POLLIN}, {.fd = out_fd, .events = POLLIN}};

    for (;;) {
        int64_t left_ms = sh_ms_up(end_ns - sh_clock_ns());
        bool eof = false;
        int n, rc;

        if (left_ms <= 0)
            return SH_FAIL(err, SH_E_TIMEOUT, "a child process did not end in time");
        if (stop && atomic_load(stop))
            return SH_FAIL(err, SH_E_CANCELLED, "a child process was stopped");
        n = poll(p, 2, (int)SH_MIN(left_ms, look_ms));
        if (n < 0 && errno != EINTR)
            return SH_FAIL_ERRNO(err, SH_E_IO, "could not wait for a child process");
        if (n < 0)
            continue;
        rc = p[1].fd >= 0 ? drain_output(out_fd, b, &eof, err) : SH_OK;
        if (rc)
            return rc;
        if (eof)
            p[1].fd = -1;
        if (p[0].revents && (eof || p[1].fd < 0 || !p[1].revents))
            return SH_OK;
        p[1].revents = 0;
    }
}

static int reap_child(pid_t pid, int pidfd, int *status, struct sh_err *err)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    int64_t end = sh_clock_ns() + SH_MS(KILL_WAIT_MS);
    pid_t got;

    while (pidfd >= 0 && poll(&p, 1, KILL_WAIT_MS) <= 0)
        if (errno != EINTR || sh_clock_ns() > end)
            return SH_FAIL(err, SH_E_IO, "a killed child process does not go away");
    do {
        got = waitpid(pid, status, 0);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not collect a child process");
    return SH_OK;
}

int sh_spawn_run(const struct sh_spawn *s, int64_t timeout_ms, size_t max_out, char **out,
                 size_t *out_len, int *wait_status, struct sh_err *err)
{
    int64_t end = sh_clock_ns() + SH_MS(timeout_ms);
    struct sh_spawn with_pipe = *s;
    int fds[2] = {-1, -1}, pidfd = -1, status = 0, rc;
    struct sh_buf b;
    pid_t pid = -1;

    *out = NULL;
    *out_len = 0;
    *wait_status = 0;
    sh_buf_init(&b, max_out);
    rc = sh_buf_append(&b, "", 0, err); /* so that no output gives "" */
    if (rc)
        goto out;
    if (pipe2(fds, O_CLOEXEC) != 0 || fcntl(fds[0], F_SETFL, O_NONBLOCK) != 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not create a pipe for a child");
        goto out;
    }
    with_pipe.stdout_fd = fds[1];
    rc = sh_spawn(&with_pipe, &pid, err);
    if (rc)
        goto out;
    close(fds[1]);
    fds[1] = -1;
    pidfd = pidfd_open(pid, 0);
    if (pidfd < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not watch a child process");
    else
        rc = collect_output(fds[0], pidfd, end, s->stop, &b, err);
out:
    if (pid > 0) {
        int rc2;

        if (rc)
            kill(pid, SIGKILL);
        rc2 = reap_child(pid, pidfd, &status, err);
        rc = rc ? rc : rc2;
    }
    if (!rc) {
        *out_len = b.len;
        *out = sh_buf_take(&b);
        *wait_status = status;
    }
    sh_buf_fini(&b);
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    if (pidfd >= 0)
        close(pidfd);
    return rc;
}
