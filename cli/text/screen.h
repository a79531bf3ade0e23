/* screen.h - a terminal as one full screen: frames of lines, and keys.
 *
 * The screen of before comes back at screen_close(), and if the program ends by INT, TERM or HUP.
 * TSTP stops the program with the terminal as it was; the next frame comes when it goes on. There
 * is one screen in a process, and one thread uses it.
 */
#ifndef SH_CLI_TEXT_SCREEN_H
#define SH_CLI_TEXT_SCREEN_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

enum screen_key {               /* or a byte as it was typed, as 'q' */
                  KEY_NONE = 0, /* the time is over */
                  KEY_ENTER = '\r',
                  KEY_ESCAPE = 27,
                  KEY_ERASE = 127,
                  KEY_UP = 1000,
                  KEY_DOWN,
                  KEY_LEFT,
                  KEY_RIGHT,
                  KEY_PAGE_UP,
                  KEY_PAGE_DOWN,
                  KEY_HOME,
                  KEY_LAST,
                  KEY_BACK_TAB,
                  KEY_RESIZED, /* or the program was stopped and goes on */
                  KEY_END,     /* of the input: nobody is there any more */
};

enum screen_look { LOOK_PLAIN, LOOK_BOLD, LOOK_REVERSE, LOOK_DIM };

/* Takes the terminal of standard input and output over. Fails: SH_E_INVALID, if they are none. */
int screen_open(struct sh_err *err);
void screen_close(void);
/* In characters; at least 20 by 4. */
void screen_size(size_t *rows, size_t *cols);

/* A frame: screen_begin(), lines from above, screen_end(), which shows it at once. Lines that do
 * not fit are cut; what is below the last one is empty. */
void screen_begin(void);
void screen_line(enum screen_look look, const char *text);
int screen_end(struct sh_err *err); /* fails: SH_E_IO, SH_E_NOMEM */

/* The next key, or KEY_NONE after so many milliseconds. */
int screen_key(int64_t ms);

#endif
