/* confine.c - what a worker gives up: files, the user, system calls. What that leaves to whoever
 * takes a worker over: docs/security.md.
 *
 * Files first, while there is one thread: Landlock does not reach threads that exist, and the
 * libraries of a device start some. So the list has what those libraries read, and what a GPU's
 * driver opens. What a tenant owns is in no list: the executor sends it, opened, with each task.
 * System calls come last: a driver does things at its start that it never does again. The user
 * changes between the two: before a GPU is opened, because a driver knows who opened a device;
 * otherwise after, because the libraries may lie where only root gets. */
#include "common/conf.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/spawn.h"
#include "executor/model/sandbox.h"
#include "executor/worker/worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define MAX_PATHS 128
#define MAX_FILES 1024 /* that it has open; a driver takes some hundred */
#define MAX_TASKS 8192 /* of its user: its threads */

struct paths {
    struct sandbox_path path[MAX_PATHS];
    char *text[MAX_PATHS]; /* OWNED */
    size_t n;
    size_t n_libs; /* the first ones: where libraries lie that are loaded at first use */
};

static int add(struct paths *p, unsigned access, struct sh_err *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static int add(struct paths *p, unsigned access, struct sh_err *err, const char *fmt, ...)
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
            rc = add(p, SANDBOX_READ, err, "%s", real);
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
            rc = add(p, SANDBOX_READ, err, "%.*s", (int)SH_MIN(n, (size_t)PATH_MAX), list);
        list += n + (list[n] == ':');
    }
    return rc;
}

static int add_libraries(struct paths *p, struct sh_err *err)
{
    char dir[PATH_MAX], cuda[PATH_MAX + 16];
    int rc = sh_self_dir(dir, sizeof(dir), err);

    if (!rc)
        rc = add(p, SANDBOX_READ, err, "%s/../lib", dir);
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
            rc = add(p, SANDBOX_READ | SANDBOX_WRITE, err, "/dev/%s", e->d_name);
    if (d)
        closedir(d);
    return rc;
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
        rc = add(p, SANDBOX_READ, err, "%s", ALWAYS[i]);
    if (!rc)
        rc = add(p, SANDBOX_READ | SANDBOX_WRITE, err, "/dev/null");
    if (rc || !w->has_driver)
        return rc;
    for (size_t i = 0; !rc && i < SH_ARRAY_LEN(DRIVER); i++)
        rc = add(p, SANDBOX_READ, err, "%s", DRIVER[i]);
    if (!rc)
        rc = add_devices(p, err);
    if (!rc && m->kernels_dir[0])
        rc = add(p, SANDBOX_READ | SANDBOX_MAKE, err, "%s", m->kernels_dir);
    return rc;
}

/* Would a library that is loaded at first use, and the device, still be found? Root only, and with
 * one thread: it is that user for a moment. */
static bool can_reach(const struct paths *p, uid_t uid)
{
    bool ok = setgroups(0, NULL) == 0 && setegid((gid_t)uid) == 0 && seteuid(uid) == 0;

    for (size_t i = 0; ok && i < p->n; i++) {
        const bool is_device = p->path[i].access & SANDBOX_WRITE;

        if (i < p->n_libs || is_device)
            ok = faccessat(AT_FDCWD, p->text[i], is_device ? R_OK | W_OK : R_OK | X_OK,
                           AT_EACCESS) == 0 ||
                 errno == ENOENT;
    }
    return seteuid(0) == 0 && setegid(0) == 0 && ok;
}

/* Root of a container may not be allowed to be anybody else, or know no such user: then it is not
 * much of a root, and what it has is given up. */
static int become(struct worker *w, struct sh_err *err)
{
    struct sh_err why = {0};
    int rc = SH_OK;

    if (w->uid && sandbox_user(w->uid, (gid_t)w->uid, &why)) {
        sh_err_detail(&why, "the worker stays root, without capabilities");
        sh_log_err(SH_LOG_WARN, "worker.user", &why);
        w->uid = 0;
    }
    if (!w->uid)
        rc = sandbox_user(0, 0, err);
    /* A change of the user takes away the signal at the executor's end. */
    return rc ? rc : sh_spawn_child_init(err);
}

/* The driver knows who opened a device, and answers nobody else. */
static int confine_for_driver(struct worker *w, const struct paths *p, struct sh_err *err)
{
    const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};

    if (geteuid() != 0)
        return SH_OK;
    if (w->uid && !can_reach(p, w->uid)) {
        SH_WARN(
            "worker.user",
            "uid=%u msg=\"it gets neither at the libraries nor at the device, so the worker stays "
            "root, without capabilities; put them where every user gets\"",
            (unsigned)w->uid);
        w->uid = 0;
    }
    if (setrlimit(RLIMIT_MEMLOCK, &all) != 0) /* root needs none, and will be root no more */
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not raise the limit of locked memory");
    return become(w, err);
}

int confine_files(struct worker *w, const struct msg_wk_init *m, struct sh_err *err)
{
    struct paths p = {.n = 0};
    int rc = SH_OK;

    w->is_lenient = m->lenient;
    w->has_driver = strcmp(m->device, "cpu") != 0 && strcmp(m->device, "fake") != 0;
    if (m->kernels_dir[0]) /* without it: measured anew */
        w->kernels_fd = open(m->kernels_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (w->is_lenient)
        return SH_OK;
    w->uid = geteuid() == 0 ? (uid_t)m->uid : 0;
    rc = list_paths(w, m, &p, err);
    if (!rc)
        rc = sandbox_files(p.path, p.n, err);
    if (!rc && w->has_driver)
        rc = confine_for_driver(w, &p, err);
    for (size_t i = 0; i < p.n; i++)
        free(p.text[i]);
    return rc;
}

int confine(struct worker *w, struct sh_err *err)
{
    const enum sandbox_calls calls = w->has_driver ? SANDBOX_DRIVER : SANDBOX_COMPUTE;
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
        rc = sandbox_calls(calls, err);
    if (rc)
        return rc;
    snprintf(w->confined, sizeof(w->confined), "uid=%u files=%s calls=%s", (unsigned)geteuid(),
             sandbox_hides_files() && !w->is_lenient ? "listed" : "all",
             !sandbox_lists_calls() ? "all"
             : w->has_driver        ? "driver"
                                    : "compute");
    return SH_OK;
}
