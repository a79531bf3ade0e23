/* buckets.c - see buckets.h. */
#include "common/buckets.h"

#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>

static int read_bucket_list(const char *name, const json_t *list, uint32_t *v, uint32_t *n,
                            struct sh_err *err)
{
    int64_t last = SH_BUCKET_FROM - 1;

    if (!json_is_array(list) || json_array_size(list) < 1 || json_array_size(list) > SH_MAX_BUCKETS)
        return SH_FAIL(err, SH_E_INVALID,
                       "the buckets of \"%.64s\" must be a list of 1 to %u sizes", name,
                       SH_MAX_BUCKETS);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *size = json_array_get(list, i);

        if (!json_is_integer(size) || json_integer_value(size) <= last ||
            json_integer_value(size) > SH_BUCKET_MOST)
            return SH_FAIL(err, SH_E_INVALID,
                           "the buckets of \"%.64s\" must rise, from %u to %d at most", name,
                           SH_BUCKET_FROM, SH_BUCKET_MOST);
        last = v[(*n)++] = (uint32_t)json_integer_value(size);
    }
    return SH_OK;
}

static int no_symbol(const char *name, const struct sh_symbols *s, struct sh_err *err)
{
    char known[256] = "";
    size_t len = 0;

    for (size_t i = 0; i < s->n && len < sizeof(known); i++)
        len +=
            (size_t)snprintf(known + len, sizeof(known) - len, "%s%s", i ? ", " : "", s->name[i]);
    return SH_FAIL(
        err, SH_E_INVALID,
        "buckets are given for \"%.64s\", but the sizes that the model leaves open beside "
        "the batch are: %s",
        name, s->n ? known : "none");
}

int sh_buckets_read(const json_t *j, const struct sh_symbols *s, struct sh_buckets *out,
                    struct sh_err *err)
{
    const char *name;
    json_t *list;
    int rc = SH_OK;

    if (s)
        *out = (struct sh_buckets){0};
    if (j && (!json_is_object(j) || json_object_size(j) > SH_MAX_SYMBOLS))
        return SH_FAIL(err, SH_E_INVALID,
                       "buckets must be an object of at most %u lists of sizes, such as "
                       "{\"length\": [64, 128]}",
                       SH_MAX_SYMBOLS);
    json_object_foreach((json_t *)(uintptr_t)j, name, list)
    {
        uint32_t v[SH_MAX_BUCKETS], n = 0;
        int k = s ? sh_symbol_find(s, name) : 0;

        if (!rc && k < 0)
            rc = no_symbol(name, s, err);
        if (!rc && strlen(name) >= SH_SYMBOL_BYTES)
            rc = SH_FAIL(err, SH_E_INVALID, "the name of a size has more than %u bytes",
                         SH_SYMBOL_BYTES - 1);
        if (!rc)
            rc = read_bucket_list(name, list, v, &n, err);
        if (rc || !s)
            continue;
        memcpy(out->v[k], v, sizeof(v));
        out->n[k] = n;
    }
    return rc;
}

uint32_t sh_bucket_of(const struct sh_buckets *b, size_t k, uint32_t size)
{
    for (uint32_t i = 0; i < b->n[k] && size >= SH_BUCKET_FROM; i++)
        if (b->v[k][i] >= size)
            return b->v[k][i];
    return size;
}
