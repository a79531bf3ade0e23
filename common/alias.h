/* alias.h - names of aliases, which stand for versions of a model: what API and scheduler both know
 * of them. Pure.
 */
#ifndef SH_COMMON_ALIAS_H
#define SH_COMMON_ALIAS_H

#include <stdbool.h>

#define SH_ALIAS_MOST 16 /* aliases of a model */
#define SH_ALIAS_NAME 64 /* bytes, with the NUL */
#define SH_ALIAS_PATTERN "^[a-z][a-z0-9-]{0,62}$"

bool sh_alias_is_name(const char *s); /* SH_ALIAS_PATTERN */

#endif
