/* field.h - fields and their values, as they are typed; failures of usage. */
#ifndef SH_CLI_TEXT_FIELD_H
#define SH_CLI_TEXT_FIELD_H

#include "cli/cli.h"

/* A failure of usage: exit status 2. */
int cli_usage(struct cli *c, struct sh_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* obj.name = the number in the text of an option of that name; nothing if it was not given. Fails
 * as usage if the text is none. */
int cli_set_number(struct cli *c, json_t *obj, const char *name, const char *text, bool is_int,
                   struct sh_err *err);

/* Is it the name of a field or option in bytes? */
bool cli_is_bytes(const char *name);
/* The value of NAME=VALUE: null, a number, or of a field in bytes a size such as 1.5Gi. *out:
 * OWNED; NULL if it is none of these, and SH_OK. Fails as usage for what is no size. */
int cli_value(struct cli *c, const char *name, const char *text, json_t **out, struct sh_err *err);

#endif
