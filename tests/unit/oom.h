/* oom.h - allocations that fail after the first so many; for programs that are linked with
 * --wrap=malloc, calloc and realloc. */
#ifndef SH_TESTS_UNIT_OOM_H
#define SH_TESTS_UNIT_OOM_H

#include <stdbool.h>
#include <stddef.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static int calls_left = -1; /* < 0: never fail */
static bool fails_once;     /* that one only: those behind it succeed */

static bool fails(void)
{
    if (calls_left < 0)
        return false;
    if (calls_left == 0) {
        calls_left = fails_once ? -1 : 0;
        return true;
    }
    calls_left--;
    return false;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

#endif
