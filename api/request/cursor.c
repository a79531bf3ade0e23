/* cursor.c - see cursor.h. text = base64url(tag | id XOR pad); tag = HMAC(id, list), cut to 16
 * bytes; pad = HMAC(tag). */
#include "api/request/cursor.h"

#include "api/request/base64.h"
#include "common/hash.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define TAG_BYTES 16
#define ID_BYTES 8
#define MAX_LIST 1024

static int cursor_tag(const uint8_t *key, const char *list, int64_t id,
                      uint8_t out[static TAG_BYTES], struct sh_err *err)
{
    uint8_t text[ID_BYTES + MAX_LIST], mac[SH_SHA256_BYTES];
    size_t n = SH_MIN(strlen(list), (size_t)MAX_LIST);
    int rc;

    memcpy(text, &id, ID_BYTES);
    memcpy(text + ID_BYTES, list, n);
    rc = sh_hmac_sha256(key, CURSOR_KEY_BYTES, text, ID_BYTES + n, mac, err);
    if (!rc)
        memcpy(out, mac, TAG_BYTES);
    return rc;
}

/* The same in both directions. */
static int mask(const uint8_t *key, const uint8_t *tag, uint8_t id[static ID_BYTES],
                struct sh_err *err)
{
    uint8_t mac[SH_SHA256_BYTES];
    int rc = sh_hmac_sha256(key, CURSOR_KEY_BYTES, tag, TAG_BYTES, mac, err);

    for (size_t i = 0; !rc && i < ID_BYTES; i++)
        id[i] ^= mac[i];
    return rc;
}

int cursor_seal(const uint8_t key[static CURSOR_KEY_BYTES], const char *list, int64_t id,
                char out[static CURSOR_TEXT], struct sh_err *err)
{
    uint8_t raw[TAG_BYTES + ID_BYTES];
    int rc = cursor_tag(key, list, id, raw, err);

    memcpy(raw + TAG_BYTES, &id, ID_BYTES);
    if (!rc)
        rc = mask(key, raw, raw + TAG_BYTES, err);
    if (!rc)
        sh_base64url(raw, sizeof(raw), out);
    return rc;
}

int cursor_open(const uint8_t key[static CURSOR_KEY_BYTES], const char *list, const char *text,
                int64_t *id, struct sh_err *err)
{
    uint8_t raw[TAG_BYTES + ID_BYTES] = {0}, tag[TAG_BYTES];
    bool whole = strlen(text) == CURSOR_TEXT - 1 &&
                 base64_decode(text, strlen(text), raw, sizeof(raw), NULL) == SH_OK;
    int64_t n;
    int rc = mask(key, raw, raw + TAG_BYTES, err);

    *id = 0;
    memcpy(&n, raw + TAG_BYTES, ID_BYTES);
    if (!rc)
        rc = cursor_tag(key, list, n, tag, err);
    if (rc)
        return rc;
    if (!whole || !sh_mem_equal_ct(tag, raw, TAG_BYTES))
        return SH_FAIL(
            err, SH_E_INVALID,
            "the cursor does not belong to this list; use \"next_cursor\" of the previous page");
    *id = n;
    return SH_OK;
}

static int read_cursor_key(const char *path, uint8_t *key, struct sh_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = SH_OK;
    ssize_t n;

    if (fd < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not open \"%s\"", path);
    n = read(fd, key, CURSOR_KEY_BYTES);
    if (n != CURSOR_KEY_BYTES)
        rc = SH_FAIL(err, SH_E_IO, "\"%s\" does not hold %d bytes; remove it", path,
                     CURSOR_KEY_BYTES);
    close(fd);
    return rc;
}

/* Written beside it and linked: whoever comes first wins, and nobody reads half a key. */
static int make_cursor_key(const char *path, struct sh_err *err)
{
    uint8_t key[CURSOR_KEY_BYTES];
    char *draft = NULL;
    int fd = -1, rc = sh_asprintf(err, &draft, "%s.XXXXXX", path);

    if (!rc)
        rc = sh_random(key, sizeof(key), err);
    if (rc)
        goto out;
    fd = mkostemp(draft, O_CLOEXEC); /* mode 0600 */
    if (fd < 0 || write(fd, key, sizeof(key)) != (ssize_t)sizeof(key) || fsync(fd) ||
        (link(draft, path) && errno != EEXIST))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make \"%s\"", path);
    if (fd >= 0) {
        unlink(draft);
        close(fd);
    }
out:
    free(draft);
    return rc;
}

int cursor_key_load(const char *state_dir, uint8_t key[static CURSOR_KEY_BYTES], struct sh_err *err)
{
    char *path = NULL;
    int rc = sh_asprintf(err, &path, "%s/cursor.key", state_dir);

    if (!rc && access(path, F_OK))
        rc = make_cursor_key(path, err);
    if (!rc)
        rc = read_cursor_key(path, key, err);
    free(path);
    return rc;
}
