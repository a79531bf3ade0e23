/* quota.h - the limits of a tenant, from quota.def. */
#ifndef SH_COMMON_QUOTA_H
#define SH_COMMON_QUOTA_H

#include "common/field.h"

/* Defaults: SH_QUOTA_max_running_jobs; -1 if the default is null. */
#define null (-1)
enum {
#define QUOTA(name, type, least, most, value, text) SH_QUOTA_##name = (int64_t)(value),
#include "common/quota.def"
#undef QUOTA
};
#undef null

extern const struct sh_field SH_QUOTA_FIELDS[];
extern const size_t SH_N_QUOTA_FIELDS;
extern const struct sh_fields SH_QUOTA; /* the same */

#endif
