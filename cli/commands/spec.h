/* spec.h - the spec of a job, from the options of `shunt submit`. */
#ifndef SH_CLI_COMMANDS_SPEC_H
#define SH_CLI_COMMANDS_SPEC_H

#include "cli/cli.h"

/* Combines the file of --spec and the options. *out: OWNED. */
int spec_fill(struct cli *c, bool is_batch, json_t **out, struct sh_err *err);

/* batch.c: fills in what only batch inference has; and refuses it for training. */
int batch_fill_spec(struct cli *c, json_t *spec, struct sh_err *err);
int batch_refuse(struct cli *c, struct sh_err *err);

#endif
