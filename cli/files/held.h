/* held.h - holds INT and TERM: a command that has to clean up asks whether one has come.
 *
 * The first signal makes the command end by itself; the second ends the program.
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
bool held_came(struct held *h); /* true from the first signal on */
void held_end(struct held *h);  /* may be called twice */

#endif
