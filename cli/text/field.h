/* field.h - fields and their values, as typed; failures of wrong usage. */
#ifndef SH_CLI_TEXT_FIELD_H
#define SH_CLI_TEXT_FIELD_H

#include "cli/cli.h"

/* Fails as wrong usage: exit status 2. */
int cli_usage(struct cli *c, struct sh_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets obj.name to the number in an option's text; does nothing if it was not given. Fails as wrong
 * usage if the text is not a number. */
int cli_set_number(struct cli *c, json_t *obj, const char *name, const char *text, bool is_int,
                   struct sh_err *err);

/* Is this the name of a field or option in bytes? */
bool cli_is_bytes(const char *name);
/* Parses the value of NAME=VALUE: null, a number or, for a field in bytes, a size such as 1.5Gi.
 * *out: OWNED; NULL, with SH_OK, if it is none of these. Fails as wrong usage for a malformed
 * size. */
int cli_value(struct cli *c, const char *name, const char *text, json_t **out, struct sh_err *err);

#endif
