/* alias.c - see alias.h. */
#include "common/alias.h"

#include <string.h>

bool sh_alias_is_name(const char *s)
{
    size_t len = strlen(s);

    return len >= 1 && len < SH_ALIAS_NAME && s[0] >= 'a' && s[0] <= 'z' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
}
