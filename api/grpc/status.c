/* status.c - see status.h. */
#include "api/grpc/status.h"

#include "common/mem.h"
#include "common/units.h"

#include <string.h>

enum grpc_status grpc_status_of(int rc, int http)
{
    if (rc && http == 501) /* not offered by this server, whatever is asked for */
        return GRPC_UNIMPLEMENTED;
    switch (rc) {
    case SH_OK:
        return GRPC_OK;
    case SH_E_CANCELLED:
        return GRPC_CANCELLED;
    case SH_E_INVALID:
    case SH_E_NAN:
        return GRPC_INVALID_ARGUMENT;
    case SH_E_TIMEOUT:
        return GRPC_DEADLINE_EXCEEDED;
    case SH_E_NOTFOUND:
        return GRPC_NOT_FOUND;
    case SH_E_FORBIDDEN:
        return GRPC_PERMISSION_DENIED;
    case SH_E_QUOTA:
    case SH_E_TOOBIG:
    case SH_E_DISKFULL:
        return GRPC_RESOURCE_EXHAUSTED;
    case SH_E_CONFLICT:
    case SH_E_PRECONDITION:
        return GRPC_FAILED_PRECONDITION;
    case SH_E_UNSUPPORTED:
    case SH_E_MULTIGPU:
    case SH_E_METHOD:
        return GRPC_UNIMPLEMENTED;
    case SH_E_UNAUTHENTICATED:
        return GRPC_UNAUTHENTICATED;
    default:
        return sh_rc_http(rc) == 503 ? GRPC_UNAVAILABLE : GRPC_INTERNAL;
    }
}

const char *grpc_status_name(enum grpc_status s)
{
    static const char *const NAMES[] = {
        [GRPC_OK] = "OK",
        [GRPC_CANCELLED] = "CANCELLED",
        [GRPC_UNKNOWN] = "UNKNOWN",
        [GRPC_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
        [GRPC_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
        [GRPC_NOT_FOUND] = "NOT_FOUND",
        [GRPC_PERMISSION_DENIED] = "PERMISSION_DENIED",
        [GRPC_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
        [GRPC_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
        [GRPC_ABORTED] = "ABORTED",
        [GRPC_UNIMPLEMENTED] = "UNIMPLEMENTED",
        [GRPC_INTERNAL] = "INTERNAL",
        [GRPC_UNAVAILABLE] = "UNAVAILABLE",
        [GRPC_UNAUTHENTICATED] = "UNAUTHENTICATED",
    };

    return (size_t)s < SH_ARRAY_LEN(NAMES) && NAMES[s] ? NAMES[s] : "UNKNOWN";
}

/* All that may stand there as it is, but letters and digits. */
int grpc_put_message(struct sh_buf *out, const char *text, struct sh_err *err)
{
    return sh_buf_escape(out, text, " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~", err);
}

int grpc_parse_timeout(const char *text, int64_t *ns, struct sh_err *err)
{
    static const struct {
        char name;
        int64_t ns;
    } UNITS[] = {{'H', 3600 * SH_S(1)}, {'M', 60 * SH_S(1)}, {'S', SH_S(1)},
                 {'m', SH_MS(1)},       {'u', SH_US(1)},     {'n', 1}};
    size_t digits = strspn(text, "0123456789");
    int64_t n = 0;

    for (size_t i = 0; digits <= 8 && i < digits; i++)
        n = n * 10 + (text[i] - '0');
    for (size_t i = 0; digits > 0 && digits <= 8 && i < SH_ARRAY_LEN(UNITS); i++)
        if (text[digits] == UNITS[i].name && !text[digits + 1]) {
            /* 11 years of hours fit only just not into 64 bits of nanoseconds */
            *ns = n > INT64_MAX / UNITS[i].ns ? INT64_MAX : n * UNITS[i].ns;
            return SH_OK;
        }
    return SH_FAIL(err, SH_E_INVALID,
                   "grpc-timeout must be 1 to 8 digits and a unit: H, M, S, m, u or n");
}
