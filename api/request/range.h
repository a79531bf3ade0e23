/* range.h - conditional and partial GETs of a file (RFC 9110, sections 13 and 14). Pure. */
#ifndef SH_API_REQUEST_RANGE_H
#define SH_API_REQUEST_RANGE_H

#include <stdbool.h>
#include <stdint.h>

enum range {
    RANGE_ALL,  /* no Range, or one to ignore: the whole file */
    RANGE_PART, /* [*from, *from + *n) */
    RANGE_BAD   /* 416: it starts after the end */
};

/* Parses one byte range ("bytes=0-99", "bytes=100-", "bytes=-100"); several ranges are ignored, as
 * the standard allows. header NULL: none. */
enum range range_parse(const char *header, uint64_t size, uint64_t *from, uint64_t *n);
/* Is the ETag (with quotes) in an If-None-Match list? Weak ones count as equal. */
bool range_etag_listed(const char *header, const char *etag);

#endif
