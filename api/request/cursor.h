/* cursor.h - the place where a page of a list ended, as text that only we can read or make.
 *
 * The number of a row reveals how many rows others have made, and whoever could invent one could
 * read from anywhere. So the number is encrypted and signed (deterministically, with a synthetic
 * IV) with a secret of the installation. A cursor is valid for the list it came from, in any API
 * process and with any key. */
#ifndef SH_API_REQUEST_CURSOR_H
#define SH_API_REQUEST_CURSOR_H

#include "common/err.h"

#define CURSOR_KEY_BYTES 32
#define CURSOR_TEXT 33 /* with the terminating NUL */

/* Reads the secret in state_dir/cursor.key, or creates it: all API processes of a state_dir share
 * it. Fails: SH_E_IO. */
int cursor_key_load(const char *state_dir, uint8_t key[static CURSOR_KEY_BYTES],
                    struct sh_err *err);
/* list: identifies the list, as text. */
int cursor_seal(const uint8_t key[static CURSOR_KEY_BYTES], const char *list, int64_t id,
                char out[static CURSOR_TEXT], struct sh_err *err);
/* Fails: SH_E_INVALID: cursor_seal() did not make it for this list. */
int cursor_open(const uint8_t key[static CURSOR_KEY_BYTES], const char *list, const char *text,
                int64_t *id, struct sh_err *err);

#endif
