/* names.c - open addressing with linear probing, at most half full. */
#include "runtime/model/names.h"

#include "common/hash.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAP 256u

int names_init(struct names *m, struct sh_err *err)
{
    memset(m, 0, sizeof(*m));
    return sh_random(&m->seed, sizeof(m->seed), err);
}

void names_fini(struct names *m)
{
    free(m->slots);
    memset(m, 0, sizeof(*m));
}

static uint64_t key_hash(const struct names *m, const char *key)
{
    uint64_t h = m->seed ^ 0x9E3779B97F4A7C15u;

    for (const unsigned char *p = (const unsigned char *)key; *p; p++) {
        h = (h ^ *p) * 0xFF51AFD7ED558CCDu;
        h ^= h >> 29;
    }
    return h ^ (h >> 32);
}

static struct names_slot *find_name_slot(const struct names *m, const char *key)
{
    size_t i = (size_t)key_hash(m, key) & (m->cap - 1);

    while (m->slots[i].key && strcmp(m->slots[i].key, key) != 0)
        i = (i + 1) & (m->cap - 1);
    return &m->slots[i];
}

uint32_t names_get(const struct names *m, const char *key)
{
    const struct names_slot *s = m->cap ? find_name_slot(m, key) : NULL;

    return s && s->key ? s->number : NAMES_NONE;
}

static int grow_names(struct names *m, struct sh_err *err)
{
    struct names bigger = {.cap = m->cap ? m->cap * 2 : FIRST_CAP, .n = m->n, .seed = m->seed};

    bigger.slots = calloc(bigger.cap, sizeof(*bigger.slots));
    if (!bigger.slots)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a table of names");
    for (size_t i = 0; i < m->cap; i++)
        if (m->slots[i].key)
            *find_name_slot(&bigger, m->slots[i].key) = m->slots[i];
    free(m->slots);
    *m = bigger;
    return SH_OK;
}

int names_put(struct names *m, const char *key, uint32_t number, struct sh_err *err)
{
    int rc = m->n * 2 >= m->cap ? grow_names(m, err) : SH_OK;

    if (rc)
        return rc;
    *find_name_slot(m, key) = (struct names_slot){key, number};
    m->n++;
    return SH_OK;
}

int names_put_first(struct names *m, const char *key, uint32_t number, struct sh_err *err)
{
    return key && key[0] && names_get(m, key) == NAMES_NONE ? names_put(m, key, number, err)
                                                            : SH_OK;
}
