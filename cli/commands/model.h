/* model.h - what commands share that are about models. */
#ifndef SH_CLI_COMMANDS_MODEL_H
#define SH_CLI_COMMANDS_MODEL_H

#include "cli/client/rest.h"

/* Paths of the API, below may be NULL; and the newest version of a model. */
int model_path(char path[static REST_PATH_MAX], const char *model, const char *below,
               struct sh_err *err);
int version_path(char path[static REST_PATH_MAX], const char *model, int64_t version,
                 const char *below, struct sh_err *err);
/* Of "NAME" or "NAME:VERSION". */
int model_ref_path(struct cli *c, char path[static REST_PATH_MAX], const char *ref,
                   const char *below, struct sh_err *err);
int model_newest(struct cli *c, const char *model, int64_t *version, struct sh_err *err);

/* "1 READY, 2 LOADING" as "summary" of each model of a list; of many versions the newest. */
void model_add_summary(json_t *models);

#endif
