/* find.h - from the words of a command line to a row of the table of commands. */
#ifndef SH_CLI_TEXT_FIND_H
#define SH_CLI_TEXT_FIND_H

#include "cli/cli.h"

/* The row for the words of a command line. *used: how many words name it. NULL with a failure that
 * says what there is. */
const struct cli_cmd *cli_find(const struct cli_table *t, char **words, int n_words, int *used,
                               struct sh_err *err);
const char *cli_long_form(const char *word); /* "-o" is "--output" */
const char *cli_real_verb(const char *verb); /* "list" is get */
extern const struct cli_verb CLI_OTHER_VERB; /* of one that has no row */
const struct cli_verb *cli_verb(const struct cli_table *t, const char *verb); /* never NULL */
/* Its options: common ones, those of its verb, its own. cmd NULL: those of every command, each name
 * once, as texts and flags at offsets of a struct cli_any. Returns how many. */
struct cli_any {
    char *text[CLI_MAX_OPTS];
    bool flag[CLI_MAX_OPTS];
};
size_t cli_options(const struct cli_table *t, const struct cli_cmd *cmd,
                   struct sh_conf_opt out[static CLI_MAX_OPTS]);
/* Of the options of cmd the one that is most like a mistyped one; NULL if none is. BORROWED. */
const char *cli_like_option(const struct cli_table *t, const struct cli_cmd *cmd, const char *word);
void cli_arg_range(const struct cli_cmd *cmd, int *min, int *max);

#endif
