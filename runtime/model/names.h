/* names.h - a hash map from names to numbers. Keys are BORROWED: the owner must outlive the map. */
#ifndef SH_RUNTIME_MODEL_NAMES_H
#define SH_RUNTIME_MODEL_NAMES_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

#define NAMES_NONE UINT32_MAX

struct names {
    struct names_slot {
        const char *key;
        uint32_t number;
    } * slots;
    size_t cap, n;
    uint64_t seed; /* random, since keys come from strangers' files */
};

int names_init(struct names *m, struct sh_err *err);
void names_fini(struct names *m);
uint32_t names_get(const struct names *m, const char *key); /* NAMES_NONE: not found */
/* The key must be new. */
int names_put(struct names *m, const char *key, uint32_t number, struct sh_err *err);
/* A key that is there already stays as it is. NULL and "" are none, and are passed over. */
int names_put_first(struct names *m, const char *key, uint32_t number, struct sh_err *err);

#endif
