/* confine.c - drops a worker's rights: files, user, system calls. docs/security.md says what is
 * left to whoever takes over a worker.
 *
 * Files come first, while there is one thread: Landlock does not cover existing threads, and a
 * device's libraries start some. So its list has what those libraries read and what a GPU's driver
 * opens. It has nothing that a tenant owns: the executor sends such files, opened, with each task.
 * System calls come last, since a driver makes calls at its start that it never makes again. The
 * user changes in between: before a GPU is opened, because a driver remembers who opened a device;
 * otherwise after, because the libraries may lie where only root can read. */
#include "common/conf.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/spawn.h"
#include "executor/worker/worker.h"
#include "runtime/model/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_PATHS 128
#define MAX_FILES 1024 /* that it has open; a driver takes some hundred */
#define MAX_TASKS 8192 /* of its user: its threads */
#define DEVICES "/dev/nvidia"

struct paths {
    struct sandbox_path path[MAX_PATHS];
    char *text[MAX_PATHS]; /* OWNED */
    size_t n;
    size_t n_libs; /* the first ones: where libraries lie that are loaded at first use */
};

static int add_path(struct paths *p, unsigned access, struct sh_err *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static int add_path(struct paths *p, unsigned access, struct sh_err *err, const char *fmt, ...)
{
    char text[PATH_MAX];
    va_list ap;
    int rc;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (p->n == MAX_PATHS)
        return SH_FAIL(err, SH_E_TOOBIG, "a worker with more than %d paths", MAX_PATHS);
    rc = sh_strdup(text, &p->text[p->n], err);
    if (!rc) {
        p->path[p->n] = (struct sandbox_path){p->text[p->n], access | SANDBOX_IF_ANY};
        p->n++;
    }
    return rc;
}

/* lib/cuda has links to where the host has them (deploy/cuda-libs.sh). */
static int add_linked(struct paths *p, const char *dir, struct sh_err *err)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int rc = SH_OK;

    while (d && !rc && (e = readdir(d))) {
        char link[PATH_MAX], real[PATH_MAX];

        if (e->d_type != DT_LNK ||
            (size_t)snprintf(link, sizeof(link), "%s/%s", dir, e->d_name) >= sizeof(link) ||
            !realpath(link, real))
            continue;
        *strrchr(real, '/') = '\0';
        if (p->n == 0 || strcmp(p->text[p->n - 1], real) != 0)
            rc = add_path(p, SANDBOX_READ, err, "%s", real);
    }
    if (d)
        closedir(d);
    return rc;
}

static int add_search_path(struct paths *p, struct sh_err *err)
{
    const char *list = sh_conf_env("LD_LIBRARY_PATH");
    int rc = SH_OK;

    while (list && *list && !rc) {
        size_t n = strcspn(list, ":");

        if (n)
            rc = add_path(p, SANDBOX_READ, err, "%.*s", (int)SH_MIN(n, (size_t)PATH_MAX), list);
        list += n + (list[n] == ':');
    }
    return rc;
}

static int add_libraries(struct paths *p, struct sh_err *err)
{
    char dir[PATH_MAX], cuda[PATH_MAX + 16];
    int rc = sh_self_dir(dir, sizeof(dir), err);

    if (!rc)
        rc = add_path(p, SANDBOX_READ, err, "%s/../lib", dir);
    snprintf(cuda, sizeof(cuda), "%s/../lib/cuda", dir);
    if (!rc)
        rc = add_linked(p, cuda, err);
    if (!rc)
        rc = add_search_path(p, err);
    p->n_libs = p->n;
    return rc;
}

static int add_devices(struct paths *p, struct sh_err *err)
{
    DIR *d = opendir("/dev");
    struct dirent *e;
    int rc = SH_OK;

    while (d && !rc && (e = readdir(d)))
        if (strncmp(e->d_name, "nvidia", 6) == 0)
            rc = add_path(p, SANDBOX_READ | SANDBOX_WRITE, err, "/dev/%s", e->d_name);
    if (d)
        closedir(d);
    return rc;
}

static bool is_of_proc(const char *path)
{
    return strncmp(path, "/proc/", 6) == 0;
}

static int list_paths(const struct worker *w, const struct msg_wk_init *m, struct paths *p,
                      struct sh_err *err)
{
    static const char *const ALWAYS[] = {"/usr",           "/lib",
                                         "/lib64",         "/etc/ld.so.cache",
                                         "/proc/self",     "/sys/devices/system",
                                         "/sys/fs/cgroup", "/proc/cpuinfo"};
    static const char *const DRIVER[] = {"/opt",          "/etc",          "/sys",
                                         "/proc/meminfo", "/proc/devices", "/proc/modules",
                                         "/proc/driver",  "/proc/sys",     "/proc/version",
                                         "/proc/stat",    "/dev/zero",     "/dev/urandom"};
    int rc = add_libraries(p, err);

    for (size_t i = 0; !rc && i < SH_ARRAY_LEN(ALWAYS); i++)
        rc = add_path(p, SANDBOX_READ, err, "%s", ALWAYS[i]);
    if (!rc)
        rc = add_path(p, SANDBOX_READ | SANDBOX_WRITE, err, "/dev/null");
    if (rc || !w->has_driver)
        return rc;
    for (size_t i = 0; !rc && i < SH_ARRAY_LEN(DRIVER); i++)
        rc = add_path(p, SANDBOX_READ | (is_of_proc(DRIVER[i]) ? SANDBOX_HOLD : 0), err, "%s",
                      DRIVER[i]);
    if (!rc)
        rc = add_devices(p, err);
    if (!rc) /* it gives its threads names; what is held is /proc/self, too */
        rc = add_path(p, SANDBOX_READ | SANDBOX_WRITE | SANDBOX_HOLD, err, "/proc/self/task");
    if (!rc && m->kernels_dir[0])
        rc = add_path(p, SANDBOX_READ | SANDBOX_MAKE, err, "%s", m->kernels_dir);
    return rc;
}

/* Would a library that is loaded at first use, and the device, still be found? Root only, and with
 * one thread: it is that user for a moment. */
static bool can_reach(const struct paths *p, uid_t uid)
{
    bool ok = setgroups(0, NULL) == 0 && setegid((gid_t)uid) == 0 && seteuid(uid) == 0;

    for (size_t i = 0; ok && i < p->n; i++) {
        struct stat st;
        int mode = R_OK | X_OK;

        if (i >= p->n_libs && strncmp(p->text[i], DEVICES, strlen(DEVICES)) != 0)
            continue;
        if (stat(p->text[i], &st) == 0 && S_ISCHR(st.st_mode)) /* not a folder of them */
            mode = R_OK | W_OK;
        ok = faccessat(AT_FDCWD, p->text[i], mode, AT_EACCESS) == 0 || errno == ENOENT;
    }
    return seteuid(0) == 0 && setegid(0) == 0 && ok;
}

static void stay_root(struct worker *w, struct sh_err *why)
{
    sh_err_detail(why, "the worker stays root, without capabilities");
    sh_log_err(SH_LOG_WARN, "worker.user", why);
    sh_strlcpy(w->unfenced, why->msg, sizeof(w->unfenced));
    w->uid = 0;
}

/* Root of a container may not be allowed to be anybody else, or know no such user: then it is not
 * much of a root, and what it has is given up. */
static int become(struct worker *w, struct sh_err *err)
{
    struct sh_err why = {0};
    int rc = SH_OK;

    if (w->uid && sandbox_user(w->uid, (gid_t)w->uid, &why))
        stay_root(w, &why);
    if (!w->uid)
        rc = sandbox_user(0, 0, err);
    /* A change of the user takes away the signal at the executor's end. */
    return rc ? rc : sh_spawn_child_init(err);
}

/* Root needs no limit, and will be root no more. Root of a container may not raise it: then what a
 * driver gets by itself has to do. */
static void may_lock_memory(void)
{
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};

    if (setrlimit(RLIMIT_MEMLOCK, &all) == 0)
        return;
    if (getrlimit(RLIMIT_MEMLOCK, &all) == 0) {
        SH_INFO("worker.memlock",
                "bytes=%llu msg=\"the limit of locked memory cannot be raised: %m\"",
                (unsigned long long)all.rlim_max);
        all.rlim_cur = all.rlim_max;
        setrlimit(RLIMIT_MEMLOCK, &all);
    }
}

/* The driver knows who opened a device, and answers nobody else. */
static int confine_for_driver(struct worker *w, const struct paths *p, struct sh_err *err)
{
    struct sh_err why = {0};

    if (geteuid() != 0 || !(w->fences & MSG_FENCE_CAPABILITIES))
        return SH_OK;
    if (w->uid && !can_reach(p, w->uid)) {
        SH_FAIL(&why, SH_E_IO,
                "user %u may not read the libraries of the device, or not use the device: put them "
                "where every user gets",
                (unsigned)w->uid);
        stay_root(w, &why);
    }
    may_lock_memory();
    return become(w, err);
}

int confine_files(struct worker *w, const struct msg_wk_init *m, struct sh_err *err)
{
    struct paths p = {.n = 0};
    int rc = SH_OK;

    w->fences = m->fences;
    w->has_driver = strcmp(m->device, "cuda") == 0;
    if (m->kernels_dir[0]) /* without it: measured anew */
        w->kernels_fd = open(m->kernels_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    w->uid = geteuid() == 0 && w->fences & MSG_FENCE_USER ? (uid_t)m->uid : 0;
    rc = list_paths(w, m, &p, err);
    if (!rc && w->fences & MSG_FENCE_FILES)
        rc = sandbox_files(p.path, p.n, err);
    if (!rc && w->has_driver)
        rc = confine_for_driver(w, &p, err);
    for (size_t i = 0; i < p.n; i++)
        free(p.text[i]);
    return rc;
}

/* What is up, whatever was wanted. Before the list of calls, which has none that asks. Without a
 * driver it has none either that opens a file. */
static void note_worker_fences(struct worker *w)
{
    const bool has_landlock = sandbox_hides_files(), lists_calls = sandbox_lists_calls();
    const uint32_t wanted = w->fences;

    w->fences = 0;
    if (lists_calls)
        w->fences |= MSG_FENCE_CALLS;
    if (sandbox_is_powerless())
        w->fences |= MSG_FENCE_CAPABILITIES;
    if ((wanted & MSG_FENCE_FILES && has_landlock) || (lists_calls && !w->has_driver))
        w->fences |= MSG_FENCE_FILES;
    if (geteuid() != 0)
        w->fences |= MSG_FENCE_USER;
    if (wanted & ~w->fences & MSG_FENCE_FILES)
        sh_strlcpy(w->unfenced, "this kernel has no Landlock", sizeof(w->unfenced));
}

int confine(struct worker *w, struct sh_err *err)
{
    int rc = sandbox_limit(RLIMIT_CORE, 0, err);

    if (!rc)
        rc = sandbox_limit(RLIMIT_NOFILE, MAX_FILES, err);
    if (!rc && w->uid)
        rc = sandbox_limit(RLIMIT_NPROC, MAX_TASKS, err);
    if (!rc && !w->has_driver && geteuid() == 0)
        rc = become(w, err);
    /* Another worker of this user shall not look into this one. */
    if (!rc && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not close the process to others");
    if (!rc)
        note_worker_fences(w);
    return rc ? rc : sandbox_calls(w->has_driver ? SANDBOX_DRIVER : SANDBOX_COMPUTE, err);
}
