/* held.h - INT and TERM as a question: a command that has to clean up asks whether one has come.
 *
 * The first one ends what the command does, by its own means; a second one ends the program.
 */
#ifndef SH_CLI_FILES_HELD_H
#define SH_CLI_FILES_HELD_H

#include <signal.h>
#include <stdbool.h>

struct held { /* zeroed: nothing is held */
    sigset_t mask;
    bool is_on, has_come;
};

void held_begin(struct held *h);
bool held_came(struct held *h); /* true from the first one on */
void held_end(struct held *h);  /* may be called twice */

#endif
