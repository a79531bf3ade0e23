/* model.h - shared by the commands about models. */
#ifndef SH_CLI_COMMANDS_MODEL_H
#define SH_CLI_COMMANDS_MODEL_H

#include "cli/client/rest.h"

/* Make paths of the API; below may be NULL. */
int model_path(char path[static REST_PATH_MAX], const char *model, const char *below,
               struct sh_err *err);
int version_path(char path[static REST_PATH_MAX], const char *model, int64_t version,
                 const char *below, struct sh_err *err);
/* ref: "NAME" or "NAME:VERSION". */
int model_ref_path(struct cli *c, char path[static REST_PATH_MAX], const char *ref,
                   const char *below, struct sh_err *err);
int model_newest(struct cli *c, const char *model, int64_t *version, struct sh_err *err);
/* Waits, for at most --wait-s, until it is in this state: READY or UNLOADED. Fails: SH_E_TIMEOUT;
 * SH_E_CONFLICT: it will not be. */
int model_wait_version(struct cli *c, const char *model, int64_t version, const char *want,
                       struct sh_err *err);

/* Adds "summary", such as "1 READY, 2 LOADING", to each model of a list; of many versions only the
 * newest count. */
void model_add_summary(json_t *models);

#endif
