/* help.h - help, documentation and completion, from the table of commands. */
#ifndef SH_CLI_HELP_H
#define SH_CLI_HELP_H

#include "cli/cli.h"

void help_all(void);
/* For one verb, or one of its commands (noun not NULL). Fails if there is none. */
int help_verb(const char *verb, const char *noun, struct sh_err *err);
void help_docs(void); /* prints docs/cli.md */
int help_completion(const char *shell, struct sh_err *err);

/* complete.c: prints candidates for the last word; and collects the words that are options about
 * the server (out: room for n; returns their number). */
void complete_words(struct cli *c, int n, char **words);
int complete_options(int n, char **words, char **out);

#endif
