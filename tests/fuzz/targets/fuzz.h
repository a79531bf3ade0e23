/* fuzz.h - what the fuzz targets share: what libFuzzer calls, and its input as text. */
#ifndef SH_TESTS_FUZZ_H
#define SH_TESTS_FUZZ_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Looks at the input in one way; whatever it is, the code under test must take or refuse it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A promise of the code under test, beside what sanitizers see. */
static inline void must(int holds)
{
    if (!holds)
        abort();
}

/* Who refuses says why: a code and a sentence. */
static inline void must_say_why(int rc, const struct sh_err *err)
{
    must(rc == err->rc && (rc == 0 || err->msg[0]));
}

/* OWNED copy of n bytes, free(): what reads beyond them is seen. With a NUL behind them if it is to
 * be a text. */
static inline char *copy_of(const void *data, size_t n, int is_text)
{
    char *p = malloc(n + (is_text ? 1 : 0) + (n == 0));

    must(p != NULL);
    if (n)
        memcpy(p, data, n);
    if (is_text)
        p[n] = '\0';
    return p;
}

/* The input as a file in memory: its descriptor, OWNED, close(), and its path. */
#define FUZZ_PATH 64
static inline int file_of(const uint8_t *data, size_t n, char path[FUZZ_PATH])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);

    must(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    snprintf(path, FUZZ_PATH, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
