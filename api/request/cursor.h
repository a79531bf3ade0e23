/* cursor.h - the place where a page of a list ended, as text that only we can read or make.
 *
 * A row's number says how many rows others have made, and whoever could make one up could read from
 * anywhere: so the number is encrypted and signed (deterministically, with a synthetic IV) with a
 * secret of the installation. A cursor is good for the list that it came from, whatever API process
 * or key it meets. */
#ifndef SH_API_REQUEST_CURSOR_H
#define SH_API_REQUEST_CURSOR_H

#include "common/err.h"

#define CURSOR_KEY_BYTES 32
#define CURSOR_TEXT 33 /* with the terminating NUL */

/* The secret in state_dir/cursor.key, made if it is not there: all API processes of a state_dir
 * have the same. Fails: SH_E_IO. */
int cursor_key_load(const char *state_dir, uint8_t key[static CURSOR_KEY_BYTES],
                    struct sh_err *err);
/* list: which list it is, as text. */
int cursor_seal(const uint8_t key[static CURSOR_KEY_BYTES], const char *list, int64_t id,
                char out[static CURSOR_TEXT], struct sh_err *err);
/* Fails: SH_E_INVALID if it is not what cursor_seal() made for this list. */
int cursor_open(const uint8_t key[static CURSOR_KEY_BYTES], const char *list, const char *text,
                int64_t *id, struct sh_err *err);

#endif
