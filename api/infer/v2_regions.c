/* v2_regions.c - the inference protocol's shared memory. System shared memory is in regions.h.
 * Device shared memory is always off: lists are empty, unregistering does nothing, registering is
 * refused.
 */
#include "api/api.h"
#include "api/handlers.h"
#include "api/infer/regions.h"
#include "api/request/noun.h"
#include "common/mem.h"

#define MOST_BYTES 9007199254740992.0 /* 2^53 */

int v2_region_list(struct api_req *q, struct sh_err *err)
{
    return regions_list(q->api->regions, q->tenant, NULL, &q->reply.body, err);
}

int v2_region_status(struct api_req *q, struct sh_err *err)
{
    return regions_list(q->api->regions, q->tenant, q->params[0], &q->reply.body, err);
}

int v2_region_unregister(struct api_req *q, struct sh_err *err)
{
    (void)err;
    regions_remove(q->api->regions, q->tenant, q->params[0]);
    return SH_OK;
}

int v2_region_register(struct api_req *q, struct sh_err *err)
{
    const char *key = NULL;
    int64_t offset = 0, bytes = 0;
    struct sh_json_field f[] = {
        {"key", SH_JSON_STR, &key, .required = true, .min = 1, .max = 255},
        {"offset", SH_JSON_INT, &offset, .min = 0, .max = MOST_BYTES},
        {"byte_size", SH_JSON_INT, &bytes, .required = true, .min = 1, .max = MOST_BYTES},
    };
    int rc = regions_check_on(q->api->regions, err);

    if (rc)
        q->reply.status = 501; /* whatever it asks for */
    else
        rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);
    return rc ? rc
              : regions_add(q->api->regions, q->tenant, q->params[0], key, (uint64_t)offset,
                            (uint64_t)bytes, err);
}

/* Of a device: always off. */

int v2_shm_list(struct api_req *q, struct sh_err *err)
{
    q->reply.body = json_array();
    return q->reply.body ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate the reply");
}

int v2_shm_status(struct api_req *q, struct sh_err *err)
{
    return SH_FAIL(err, SH_E_NOTFOUND, "there is no shared memory region \"%.128s\"", q->params[0]);
}

int v2_shm_unregister(struct api_req *q, struct sh_err *err)
{
    (void)q, (void)err;
    return SH_OK; /* there is none, so all are unregistered */
}

int v2_shm_register(struct api_req *q, struct sh_err *err)
{
    int rc = regions_check_on(q->api->regions, err);

    q->reply.status = 501;
    return rc ? rc
              : SH_FAIL(err, SH_E_UNSUPPORTED,
                        "memory of a device cannot be shared with this server; use system shared "
                        "memory, or send tensors in the body, as binary data");
}
