/* quota.c - the table of quota.def. */
#include "common/quota.h"

#include "common/mem.h"

const struct sh_field SH_QUOTA_FIELDS[] = {
#define QUOTA(name, type, least, most, value, text) \
    {#name, SH_JSON_##type, least, most, #value, text},
#include "common/quota.def"
#undef QUOTA
};
const size_t SH_N_QUOTA_FIELDS = SH_ARRAY_LEN(SH_QUOTA_FIELDS);
const struct sh_fields SH_QUOTA = {SH_QUOTA_FIELDS, SH_ARRAY_LEN(SH_QUOTA_FIELDS), 0};
