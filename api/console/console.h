/* console.h - the console: pages for browsers, which are compiled in.
 *
 * They are the same for everybody and need no key. A page asks for one, keeps it in its memory and
 * calls the API with it as any client does. files.def lists the files; console.c embeds them, so a
 * change of one needs a new build. The policy that goes with them lets a browser load scripts and
 * styles from these files alone, never from inside a page.
 */
#ifndef SH_API_CONSOLE_CONSOLE_H
#define SH_API_CONSOLE_CONSOLE_H

#include "common/err.h"

struct console;

extern const char CONSOLE_POLICY[]; /* Content-Security-Policy, also of the documentation */

int console_new(struct console **out, struct sh_err *err); /* *out: OWNED, console_free() */
void console_free(struct console *c);                      /* NULL is allowed */

#endif
