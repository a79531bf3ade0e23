/* terms.h - puts refusals into the words of the command line. */
#ifndef SH_CLI_CLIENT_TERMS_H
#define SH_CLI_CLIENT_TERMS_H

#include "cli/cli.h"

/* Replaces the server's names of fields by the command's options. */
void terms_translate(const struct cli *c, json_t *problem); /* in the server's refusal */
int terms_put(const struct cli *c, const char *text, char **out,
              struct sh_err *err); /* *out: OWNED, free() */

#endif
