/* base64.c - see base64.h. */
#include "api/request/base64.h"

static int digit64(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+' || c == '-')
        return 62;
    return c == '/' || c == '_' ? 63 : -1;
}

int base64_decode(const char *s, size_t len, uint8_t *out, size_t n, struct sh_err *err)
{
    uint32_t bits = 0;
    size_t have = 0, n_bits = 0;

    while (len > 0 && s[len - 1] == '=')
        len--;
    for (size_t i = 0; i < len; i++) {
        int v = digit64(s[i]);

        if (v < 0)
            return SH_FAIL(err, SH_E_INVALID, "the text is not base64");
        bits = (bits << 6 | (uint32_t)v) & 0xffffff;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            if (have == n)
                return SH_FAIL(err, SH_E_INVALID, "the base64 text is longer than %zu bytes", n);
            out[have++] = (uint8_t)(bits >> n_bits);
        }
    }
    if (have != n)
        return SH_FAIL(err, SH_E_INVALID, "the base64 text has %zu bytes, not %zu", have, n);
    return SH_OK;
}
