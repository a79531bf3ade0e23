/* disk.c - see disk.h; and the little else of the system that must be the same in each run. */
#include "tests/sim/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_LOCKS 1024

ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __real_pwrite(int fd, const void *p, size_t n, off_t off);
int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __real_unlink(const char *path);
int __real_mkdir(const char *path, mode_t mode);
int __real_link(const char *from, const char *to);
int __real_flock(int fd, int how);
int __real_open(const char *path, int flags, ...);
ssize_t __real_readlink(const char *path, char *out, size_t n);

static struct sim_disk disks[SIM_MAX_HOSTS];
static bool is_task, is_spared;
static uint64_t n_failed;
static void (*on_rename)(const char *to);

void sim_disk_in_task(bool is)
{
    is_task = is;
}

void sim_disk_spare(bool is)
{
    is_spared = is;
}

void sim_disk_on_rename(void (*fn)(const char *to))
{
    on_rename = fn;
}

struct sim_disk *sim_disk(unsigned host)
{
    return &disks[host];
}

uint64_t sim_disk_n_failed(void)
{
    return n_failed;
}

/* 0: go on; else why this call fails. */
static int trouble(bool grows)
{
    struct sim_proc *p = sim_self();
    struct sim_disk *d;

    if (!p || is_spared)
        return 0;
    if (!sim_proc_is_alive(p))
        return EIO;
    d = &disks[sim_proc_host(p)];
    if (is_task && d->kill_in > 0 && --d->kill_in == 0) {
        sim_proc_kill(p, SIGKILL);
        return EIO;
    }
    if (d->fail > 0 && sim_chance(d->fail))
        return EIO;
    return d->is_full && grows ? ENOSPC : 0;
}

static int fails(bool grows)
{
    const int why = trouble(grows);

    if (why) {
        errno = why;
        n_failed++;
    }
    return why;
}

ssize_t __wrap_write(int fd, const void *p, size_t n)
{
    return fd > STDERR_FILENO && fails(true) ? -1 : __real_write(fd, p, n);
}

ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t off)
{
    return fails(true) ? -1 : __real_pwrite(fd, p, n, off);
}

/* Memory is as durable as it gets. */
int __wrap_fsync(int fd)
{
    (void)fd;
    return fails(false) ? -1 : 0;
}

int __wrap_rename(const char *from, const char *to)
{
    if (fails(false) || __real_rename(from, to) < 0)
        return -1;
    if (on_rename)
        on_rename(to);
    return 0;
}

int __wrap_unlink(const char *path)
{
    return fails(false) ? -1 : __real_unlink(path);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    return fails(true) ? -1 : __real_mkdir(path, mode);
}

int __wrap_link(const char *from, const char *to)
{
    return fails(true) ? -1 : __real_link(from, to);
}

/* There is room: the pages come as they are used, most of them never. */
int __wrap_posix_fallocate(int fd, off_t off, off_t len)
{
    const int why = trouble(true);
    struct stat st;

    if (why)
        return why;
    if (fstat(fd, &st) < 0)
        return errno;
    return st.st_size < off + len && ftruncate(fd, off + len) < 0 ? errno : 0;
}

/* ------------------------------------------------------------------ locks */

/* A process that is gone holds none; here its descriptors are still open. */
static struct lock {
    int fd;
    struct sim_proc *proc;
    uint64_t generation;
    dev_t dev;
    ino_t ino;
} locks[MAX_LOCKS];
static size_t n_locks;

/* Its number may be another file's by now. */
static void close_lock(const struct lock *l)
{
    struct stat st;

    if (fstat(l->fd, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino)
        close(l->fd);
}

static void free_locks_of_the_dead(void)
{
    for (size_t i = n_locks; i-- > 0;)
        if (sim_proc_generation(locks[i].proc) != locks[i].generation) {
            close_lock(&locks[i]);
            locks[i] = locks[--n_locks];
        }
}

int __wrap_flock(int fd, int how)
{
    struct sim_proc *p = sim_self();
    struct stat st;
    int rc;

    if (!p)
        return __real_flock(fd, how);
    free_locks_of_the_dead();
    rc = __real_flock(fd, how);
    if (rc == 0 && n_locks < MAX_LOCKS && fstat(fd, &st) == 0)
        locks[n_locks++] = (struct lock){fd, p, sim_proc_generation(p), st.st_dev, st.st_ino};
    return rc;
}

/* ------------------------------------------------------------------ what differs between hosts */

static int open_boot_id(unsigned host)
{
    char text[48];
    int fd = memfd_create("boot-id", MFD_CLOEXEC);
    int n = snprintf(text, sizeof(text), "00000000-0000-4000-8000-%012u\n", host);

    if (fd >= 0 && __real_pwrite(fd, text, (size_t)n, 0) != n) {
        close(fd);
        return -1;
    }
    return fd;
}

int __wrap_open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list ap;

    va_start(ap, flags);
    if (flags & O_CREAT)
        mode = va_arg(ap, mode_t);
    va_end(ap);
    if (sim_self() && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0)
        return open_boot_id(sim_proc_host(sim_self()));
    if (is_task && fails(false))
        return -1;
    return __real_open(path, flags, mode);
}

/* A program of the simulation lies in a folder of its disk, beside those that it names. */
ssize_t __wrap_readlink(const char *path, char *out, size_t n)
{
    static const char PROGRAM[] = SIM_PROGRAMS "/program";

    if (!sim_self() || strcmp(path, "/proc/self/exe") != 0)
        return __real_readlink(path, out, n);
    return snprintf(out, n, "%s", PROGRAM);
}

int __wrap_sh_random(void *out, size_t n, void *err)
{
    (void)err;
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)out)[i] = (unsigned char)sim_below(256);
    return 0;
}
