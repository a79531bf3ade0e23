/* ckpt.c - see ckpt.h. */
#include "common/ckpt.h"

#include "common/mem.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX ".safetensors"

/* How long the executor's name is at the beginning of s. */
static size_t executor_len(const char *s)
{
    return isalnum((unsigned char)*s)
               ? strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
               : 0;
}

bool sh_ckpt_is_executor(const char *name)
{
    const size_t n = executor_len(name);

    return n > 0 && n <= SH_CKPT_EXECUTOR_MAX && !name[n];
}

void sh_ckpt_name(char out[static SH_CKPT_BYTES], int64_t step, const char *executor)
{
    snprintf(out, SH_CKPT_BYTES, "ckpt-%" PRId64 "-%.*s" SUFFIX, step, SH_CKPT_EXECUTOR_MAX,
             executor);
}

/* *rest: behind the step. */
static int64_t step_of_name(const char *name, const char **rest)
{
    const char *digits;
    size_t n;

    *rest = "";
    if (strncmp(name, "ckpt-", 5) != 0)
        return -1;
    digits = name + 5;
    n = strspn(digits, "0123456789");
    if (n == 0 || n > 18 || (n > 1 && digits[0] == '0'))
        return -1;
    *rest = digits + n;
    return strtoll(digits, NULL, 10);
}

int64_t sh_ckpt_step(const char *name)
{
    const char *rest;
    const int64_t step = step_of_name(name, &rest);
    const size_t n = strlen(rest), suffix = strlen(SUFFIX);
    char executor[SH_CKPT_EXECUTOR_MAX + 1];

    if (step < 0 || n < suffix || strcmp(rest + n - suffix, SUFFIX) != 0)
        return -1;
    if (n == suffix)
        return step;
    if (rest[0] != '-' || n - suffix > sizeof(executor))
        return -1;
    snprintf(executor, sizeof(executor), "%.*s", (int)(n - suffix - 1), rest + 1);
    return sh_ckpt_is_executor(executor) ? step : -1;
}

int64_t sh_ckpt_part_step(const char *name)
{
    const char *rest;
    const int64_t step = step_of_name(name, &rest);

    return strstr(rest, SUFFIX) ? step : -1;
}

int64_t sh_ckpt_newest(const char *dir, int64_t below, char name[static SH_CKPT_BYTES])
{
    const struct dirent *e;
    DIR *d = opendir(dir);
    int64_t best = -1, step;

    name[0] = '\0';
    while (d && (e = readdir(d))) {
        step = sh_ckpt_step(e->d_name);
        if (step >= below || step < best || step < 0)
            continue;
        if (step == best && strcmp(e->d_name, name) <= 0)
            continue; /* whatever the order of the folder */
        best = step;
        sh_strlcpy(name, e->d_name, SH_CKPT_BYTES);
    }
    if (d)
        closedir(d);
    return best;
}
