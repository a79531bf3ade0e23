/* group.c - see group.h. */
#include "tests/lab/group.h"

#include <stdlib.h>
#include <string.h>

static const struct mode {
    const char *name;
    uint64_t limit; /* a group is closed when it holds so many bytes */
} MODES[LAB_N_MODES] = {
    [LAB_OPTIMUM] = {"optimum", 0},
    [LAB_PER_LAYER] = {"per-layer", 1},
    [LAB_ONE_GROUP] = {"one-group", UINT64_MAX},
    [LAB_FIXED_2MB] = {"fixed-2mb", (uint64_t)2 << 20},
};

int lab_mode_parse(const char *name, enum lab_mode *out, struct sh_err *err)
{
    for (int i = 0; i < LAB_N_MODES; i++)
        if (strcmp(name, MODES[i].name) == 0) {
            *out = (enum lab_mode)i;
            return SH_OK;
        }
    return SH_FAIL(err, SH_E_INVALID,
                   "debug-switch-mode \"%.32s\" is unknown; use optimum, per-layer, one-group or "
                   "fixed-2mb",
                   name);
}

const char *lab_mode_name(enum lab_mode m)
{
    return MODES[m].name;
}

/* The resident head is a group of its own: it waits for nothing. */
int lab_group(enum lab_mode mode, const uint64_t *missing, uint32_t n, uint32_t **ends,
              uint32_t *n_ends, struct sh_err *err)
{
    uint64_t bytes = 0;
    uint32_t i = 0;

    *n_ends = 0;
    *ends = calloc((size_t)n + 1, sizeof(**ends));
    if (!*ends)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %u groups", n);
    while (i < n && missing[i] == 0)
        i++;
    if (i > 0)
        (*ends)[(*n_ends)++] = i;
    for (; i < n; i++) {
        bytes += missing[i];
        if (i + 1 == n || (bytes >= MODES[mode].limit && bytes > 0)) {
            (*ends)[(*n_ends)++] = i + 1;
            bytes = 0;
        }
    }
    return SH_OK;
}

static int group_by(const void *arg, const uint64_t *missing, uint32_t n, uint32_t **ends,
                    uint32_t *n_ends, struct sh_err *err)
{
    const struct mode *m = arg;

    return lab_group((enum lab_mode)(m - MODES), missing, n, ends, n_ends, err);
}

void lab_set_mode(struct tx *t, enum lab_mode mode)
{
    tx_set_group(t, mode == LAB_OPTIMUM ? NULL : group_by, &MODES[mode]);
}
