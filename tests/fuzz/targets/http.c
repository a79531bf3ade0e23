/* http.c - what of a request our own code reads: target, framing, ranges, ETags, packed bodies.
 * Lines of the input are, in this order: the target, Range, If-None-Match, Content-Encoding,
 * Accept-Encoding, a header's name and value (several); after an empty line comes the body. The
 * lines of the protocol itself are libmicrohttpd's to read. */
/* uses: api/request/uri.o api/http/framing.o api/request/range.o api/http/coding.o */
/* link: -lz */
#include "api/http/coding.h"
#include "api/http/framing.h"
#include "api/request/range.h"
#include "api/request/uri.h"
#include "common/mem.h"
#include "tests/fuzz/targets/fuzz.h"

#define MAX_BODY (1u << 20)
#define SIZE UINT64_C(1000)

/* The next line, ended by NUL; NULL: an empty one, or the end. */
static char *line(char **at)
{
    char *begin = *at, *end = begin ? strchr(begin, '\n') : NULL;

    *at = end ? end + 1 : NULL;
    if (end)
        *end = '\0';
    return begin && begin[0] ? begin : NULL;
}

static void take_target(const char *target)
{
    struct sh_err err = {0};
    struct uri *u = calloc(1, sizeof(*u));
    int rc;

    must(u != NULL);
    rc = uri_parse(target, u, &err);
    must_say_why(rc, &err);
    if (!rc) {
        must(u->n_segments <= URI_MAX_SEGMENTS && u->n_query <= URI_MAX_QUERY);
        uri_query(u, "limit");
    }
    free(u);
}

static void take_range(const char *range)
{
    uint64_t from, n;

    if (range_parse(range, SIZE, &from, &n) == RANGE_PART)
        must(n > 0 && from < SIZE && n <= SIZE - from);
}

static void take_body(const char *coding, const char *body, size_t n)
{
    struct sh_err err = {0};
    uint64_t bytes = 0;
    bool packed = false;
    int rc = coding_check(coding, &packed, &err);

    must_say_why(rc, &err);
    if (rc || !packed)
        return;
    rc = coding_unpack(coding, body, n, MAX_BODY, NULL, NULL, &bytes, &err);
    must_say_why(rc, &err);
    must(rc || bytes <= MAX_BODY);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *own = copy_of(data, n, 1), *at = own, *text, *coding, *name;
    struct framing f = {0};
    struct sh_err err = {0};

    if ((text = line(&at)))
        take_target(text);
    take_range(line(&at));
    range_etag_listed(line(&at), "\"abc\"");
    coding = line(&at);
    coding_accepts_gzip(line(&at));
    while ((name = line(&at)) && (text = line(&at)))
        framing_length(&f, name, strlen(name), text, strlen(text));
    err = (struct sh_err){0};
    must_say_why(framing_check(&f, &err), &err);
    if (at)
        take_body(coding, at, n - (size_t)(at - own));
    free(own);
    return 0;
}
