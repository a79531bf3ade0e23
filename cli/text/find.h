/* find.h - from the words of a command line to a row of the table of commands. */
#ifndef SH_CLI_TEXT_FIND_H
#define SH_CLI_TEXT_FIND_H

#include "cli/cli.h"

/* The row for the words of a command line. *used: how many words name it. NULL: fails, listing what
 * there is. */
const struct cli_cmd *cli_find(const struct cli_table *t, char **words, int n_words, int *used,
                               struct sh_err *err);
const char *cli_long_form(const char *word); /* "-o" is "--output" */
const char *cli_real_verb(const char *verb); /* "list" is "get" */
extern const struct cli_verb CLI_OTHER_VERB; /* for a verb without a row */
const struct cli_verb *cli_verb(const struct cli_table *t, const char *verb); /* never NULL */
/* A command's options: common ones, its verb's, its own. cmd NULL: those of every command, each
 * name once, as strings and flags at offsets in a struct cli_any. Returns their number. */
struct cli_any {
    char *text[CLI_MAX_OPTS];
    bool flag[CLI_MAX_OPTS];
};
size_t cli_options(const struct cli_table *t, const struct cli_cmd *cmd,
                   struct sh_conf_opt out[static CLI_MAX_OPTS]);
/* The option of cmd most similar to a mistyped word; NULL: none. BORROWED. */
const char *cli_like_option(const struct cli_table *t, const struct cli_cmd *cmd, const char *word);
void cli_arg_range(const struct cli_cmd *cmd, int *min, int *max);

#endif
