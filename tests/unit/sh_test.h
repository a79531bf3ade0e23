/* sh_test.h - what every unit test includes: cmocka, readable checks, temporary folders.
 *
 * Small static functions on purpose: a test is one file and one binary.
 */
#ifndef SH_TESTS_UNIT_SH_TEST_H
#define SH_TESTS_UNIT_SH_TEST_H

/* cmocka.h needs the four headers above it. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "common/err.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* cmocka prints -11 as 0xfffffffffffffff5; a name says more. */
#define assert_ok(expr)                                      \
    do {                                                     \
        int sh_rc_ = (expr);                                 \
        if (sh_rc_ != SH_OK)                                 \
            fail_msg("%s -> %s", #expr, sh_rc_name(sh_rc_)); \
    } while (0)

/* The same for a call that fills a struct sh_err: prints its message too. */
#define assert_ok_err(expr, err)                                                                 \
    do {                                                                                         \
        int sh_rc_ = (expr);                                                                     \
        if (sh_rc_ != SH_OK)                                                                     \
            fail_msg("%s -> %s: %s (%s)", #expr, sh_rc_name(sh_rc_), (err)->msg, (err)->detail); \
    } while (0)

/* A failure is: the right code, in both places, with a useful sentence. */
#define assert_fails(got, want, err, text)                                            \
    do {                                                                              \
        int sh_rc_ = (got);                                                           \
        if (sh_rc_ != (want) || (err)->rc != (want))                                  \
            fail_msg("%s -> %s, recorded %s (%s); want %s", #got, sh_rc_name(sh_rc_), \
                     sh_rc_name((err)->rc), (err)->msg, sh_rc_name(want));            \
        if (!strstr((err)->msg, (text)))                                              \
            fail_msg("%s: \"%s\" does not contain \"%s\"", #got, (err)->msg, (text)); \
    } while (0)

#define assert_has(text, part)                                                                  \
    do {                                                                                        \
        const char *sh_text_ = (text);                                                          \
        if (!sh_text_ || !strstr(sh_text_, (part)))                                             \
            fail_msg("\"%s\" does not contain \"%s\"", sh_text_ ? sh_text_ : "(null)", (part)); \
    } while (0)

#define assert_has_not(text, part)                                \
    do {                                                          \
        const char *sh_text_ = (text);                            \
        if (sh_text_ && strstr(sh_text_, (part)))                 \
            fail_msg("\"%s\" contains \"%s\"", sh_text_, (part)); \
    } while (0)

/* The same numbers in every run; *x is not 0. */
static inline uint32_t sh_test_random(uint32_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;
    return *x;
}

#define SH_TEST_DIR_BYTES 64

/* A new folder under /tmp; sh_test_dir_remove() empties and removes it. */
static inline void sh_test_dir_make(char dir[static SH_TEST_DIR_BYTES])
{
    snprintf(dir, SH_TEST_DIR_BYTES, "/tmp/shunt-test-XXXXXX");
    if (!mkdtemp(dir))
        fail_msg("could not make a folder under /tmp");
}

/* How many files there are; removes them too if asked. */
static inline int sh_test_dir_walk(const char *dir, bool remove_files)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        n++;
        if (remove_files)
            unlinkat(dirfd(d), e->d_name, 0);
    }
    closedir(d);
    return n;
}

static inline void sh_test_dir_remove(const char *dir)
{
    sh_test_dir_walk(dir, true);
    rmdir(dir);
}

static inline void sh_test_write_file(const char *path, const void *p, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, p, n), (ssize_t)n);
    close(fd);
}

/* OWNED, free(); NUL-terminated. */
static inline char *sh_test_read_file(const char *path, size_t *len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    char *p;

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    p = calloc(1, (size_t)st.st_size + 1);
    assert_non_null(p);
    assert_int_equal(read(fd, p, (size_t)st.st_size), st.st_size);
    close(fd);
    if (len)
        *len = (size_t)st.st_size;
    return p;
}

/* What a step writes to a descriptor (1 or 2): begin, run, end. *out of end: OWNED, free(). */
struct sh_test_capture {
    int fd, saved, file;
};

static inline void sh_test_capture_begin(struct sh_test_capture *c, int fd)
{
    char path[] = "/tmp/shunt-capture-XXXXXX";

    fflush(NULL);
    *c = (struct sh_test_capture){.fd = fd, .saved = fcntl(fd, F_DUPFD_CLOEXEC, 10)};
    c->file = mkostemp(path, O_CLOEXEC);
    assert_true(c->saved >= 0 && c->file >= 0);
    unlink(path);
    dup2(c->file, fd);
}

static inline char *sh_test_capture_end(struct sh_test_capture *c)
{
    off_t n;
    char *p;

    fflush(NULL);
    dup2(c->saved, c->fd);
    close(c->saved);
    n = lseek(c->file, 0, SEEK_END);
    assert_true(n >= 0);
    p = calloc(1, (size_t)n + 1);
    assert_non_null(p);
    assert_int_equal(pread(c->file, p, (size_t)n, 0), n);
    close(c->file);
    return p;
}

/* Descriptors that this process has open: the same before and after means no leak. */
static inline int sh_test_open_fds(void)
{
    return sh_test_dir_walk("/proc/self/fd", false);
}

#endif
