/* shm.c - shared memory by memfd, and the futex that waits in it. */
#include "common/shm.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define SLOW_NS SH_MS(4) /* for one of them; in small pages as much takes 1 to 5 ms */
#define MOST_SLOW 8u
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Both the file and its mapping begin where huge pages do. MAP_FAILED: errno says why. */
static void *map_aligned(int fd, size_t bytes, int prot)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), used = SH_ALIGN_UP(bytes, page);
    const size_t room_bytes = used + HUGE_PAGE;
    char *room, *base;

    if (bytes < HUGE_PAGE)
        return mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
    room = mmap(NULL, room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return MAP_FAILED;
    base = (char *)SH_ALIGN_UP((uintptr_t)room, HUGE_PAGE);
    if (mmap(base, used, prot, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        munmap(room, room_bytes);
        return MAP_FAILED;
    }
    if (base > room)
        munmap(room, (size_t)(base - room));
    if (base + used < room + room_bytes)
        munmap(base + used, (size_t)(room + room_bytes - (base + used)));
    return base;
}

int sh_shm_create(const char *name, size_t bytes, struct sh_shm *out, struct sh_err *err)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *base = MAP_FAILED;
    int fd = -1, rc;

    *out = (struct sh_shm){.fd = -1};
    if (bytes == 0 || bytes > (size_t)INT64_MAX - page)
        return SH_FAIL(err, SH_E_INVALID, "cannot create shared memory of %zu bytes", bytes);
    bytes = SH_ALIGN_UP(bytes, page);
    fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_NOMEM, "could not create shared memory of %zu bytes", bytes);
        goto out;
    }
    /* A peer that shrinks the file would make our next access a SIGBUS. Growing is refused too: it
     * would be memory that nobody counts. */
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not seal shared memory");
        goto out;
    }
    base = map_aligned(fd, bytes, PROT_READ | PROT_WRITE);
    if (base == MAP_FAILED) {
        rc = SH_FAIL_ERRNO(err, SH_E_NOMEM, "could not map %zu bytes of shared memory", bytes);
        goto out;
    }
    *out = (struct sh_shm){.fd = fd, .base = base, .bytes = bytes};
    fd = -1;
    rc = SH_OK;
out:
    if (fd >= 0)
        close(fd);
    return rc;
}

int sh_shm_map(int fd, size_t bytes, bool writable, struct sh_shm *out, struct sh_err *err)
{
    struct stat st;
    void *base;
    int seals;

    *out = (struct sh_shm){.fd = -1};
    if (fstat(fd, &st) != 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not look at a descriptor of shared memory");
    seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return SH_FAIL(err, SH_E_PROTO, "the descriptor is not memory sealed against shrinking");
    if (bytes == 0)
        bytes = (size_t)st.st_size;
    if (bytes == 0 || bytes > (size_t)st.st_size)
        return SH_FAIL(err, SH_E_PROTO, "shared memory has %lld bytes, %zu are needed",
                       (long long)st.st_size, bytes);
    base = map_aligned(fd, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ);
    if (base == MAP_FAILED)
        return SH_FAIL_ERRNO(err, SH_E_NOMEM, "could not map %zu bytes of shared memory", bytes);
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        int rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not mark a descriptor close-on-exec");

        munmap(base, bytes);
        return rc;
    }
    *out = (struct sh_shm){.fd = fd, .base = base, .bytes = bytes};
    return SH_OK;
}

int sh_shm_map_file(int fd, uint64_t off, size_t bytes, struct sh_shm *out, struct sh_err *err)
{
    struct stat st;
    void *base;

    *out = (struct sh_shm){.fd = -1};
    if (fstat(fd, &st) != 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not look at a file to be mapped");
    if (!S_ISREG(st.st_mode) || bytes == 0 || off > (uint64_t)st.st_size ||
        bytes > (uint64_t)st.st_size - off)
        return SH_FAIL(err, SH_E_PROTO, "a file of %lld bytes has not the %zu behind %llu",
                       (long long)st.st_size, bytes, (unsigned long long)off);
    base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, (off_t)off);
    if (base == MAP_FAILED)
        return SH_FAIL_ERRNO(err, SH_E_NOMEM, "could not map %zu bytes of a file", bytes);
    *out = (struct sh_shm){.fd = -1, .base = base, .bytes = bytes};
    return SH_OK;
}

int sh_shm_close_to_writes(const struct sh_shm *m, struct sh_err *err)
{
    if (mprotect(m->base, m->bytes, PROT_READ) != 0)
        return SH_FAIL_ERRNO(err, SH_E_NOMEM, "could not close shared memory to writes");
    return SH_OK;
}

int sh_shm_show(const struct sh_shm *m, const struct sh_shm *from, size_t off, size_t bytes,
                struct sh_err *err)
{
    if (off > m->bytes || bytes > m->bytes - off || off > from->bytes || bytes > from->bytes - off)
        return SH_FAIL(err, SH_E_BUG, "%zu bytes at %zu are not in both parts of shared memory",
                       bytes, off);
    if (mmap((char *)m->base + off, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, from->fd,
             (off_t)off) == MAP_FAILED)
        return SH_FAIL_ERRNO(err, SH_E_NOMEM, "could not map %zu bytes of shared memory", bytes);
    return SH_OK;
}

/* A huge page takes the place of a small one that is there, and of all that are not there yet. */
void sh_shm_prefer_huge(const struct sh_shm *m)
{
    unsigned n_slow = 0;

    for (size_t at = 0; at + HUGE_PAGE <= m->bytes && n_slow < MOST_SLOW; at += HUGE_PAGE) {
        volatile char *first = (char *)m->base + at;
        const int64_t began = sh_clock_ns();

        *first = 0;
        if (madvise((char *)m->base + at, HUGE_PAGE, MADV_COLLAPSE) != 0)
            return;
        n_slow += sh_clock_ns() - began > SLOW_NS;
    }
}

void sh_shm_clear(const struct sh_shm *m, size_t off, size_t bytes)
{
    if (bytes && m->fd >= 0) /* at worst it stays where it is */
        (void)fallocate(m->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off,
                        (off_t)bytes);
}

void sh_shm_cut(struct sh_shm *m, size_t bytes)
{
    if (bytes >= m->bytes)
        return;
    sh_shm_clear(m, bytes, m->bytes - bytes);
    munmap((char *)m->base + bytes, m->bytes - bytes);
    m->bytes = bytes;
    if (bytes == 0)
        m->base = NULL;
}

void sh_shm_forget_file(struct sh_shm *m)
{
    if (m->fd >= 0)
        close(m->fd);
    m->fd = -1;
}

void sh_shm_fini(struct sh_shm *m)
{
    if (m->base)
        munmap(m->base, m->bytes);
    sh_shm_forget_file(m);
    *m = (struct sh_shm){.fd = -1};
}

int sh_futex_wait(const uint32_t *word, uint32_t seen, int64_t timeout_ns)
{
    int64_t end = sh_clock_ns() + SH_MIN(SH_MAX(timeout_ns, (int64_t)0), INT64_MAX / 4);

    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == seen) {
        int64_t left = sh_clock_until(end);
        struct timespec ts = {.tv_sec = left / SH_S(1), .tv_nsec = left % SH_S(1)};

        /* Not FUTEX_PRIVATE_FLAG: the other side is another process. */
        if (left == 0 ||
            (syscall(SYS_futex, word, FUTEX_WAIT, seen, &ts, NULL, 0) != 0 && errno == ETIMEDOUT))
            return __atomic_load_n(word, __ATOMIC_ACQUIRE) == seen ? SH_E_TIMEOUT : SH_OK;
    }
    return SH_OK;
}

void sh_futex_wake(const uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
