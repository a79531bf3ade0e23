/* terms.h - refusals in the words of a command line. */
#ifndef SH_CLI_CLIENT_TERMS_H
#define SH_CLI_CLIENT_TERMS_H

#include "cli/cli.h"

/* What the server calls a field is called here as the command has it. */
void terms_translate(const struct cli *c, json_t *problem); /* what it refused */
int terms_put(const struct cli *c, const char *text, char **out,
              struct sh_err *err); /* *out: OWNED, free() */

#endif
