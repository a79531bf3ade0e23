/* wire_frame.c - a frame's header and descriptors, for both forms of a connection. */
#include "common/mem.h"
#include "common/wire_int.h"

#include <endian.h>
#include <string.h>
#include <unistd.h>

int sh_wire__encode(struct sh_buf *out, const struct sh_msg *m, size_t n_fds, struct sh_err *err)
{
    unsigned char h[SH_WIRE__HEADER] = {0};
    uint16_t type = htole16((uint16_t)m->type);
    uint32_t len;
    int rc;

    sh_buf_reset(out);
    rc = sh_buf_append(out, h, sizeof(h), err);
    if (!rc)
        rc = sh_msg_encode(m, out, err);
    if (rc)
        return rc;
    if (out->len - sizeof(h) > SH_WIRE_MAX_FRAME)
        return SH_FAIL(err, SH_E_TOOBIG, "message %s has %zu bytes, at most %u can be sent",
                       sh_msg_name(m->type), out->len - sizeof(h), SH_WIRE_MAX_FRAME);
    len = htole32((uint32_t)(out->len - sizeof(h)));
    memcpy(out->data, &len, sizeof(len));
    out->data[4] = SH_WIRE_VERSION;
    out->data[5] = (char)n_fds;
    memcpy(out->data + 6, &type, sizeof(type));
    return SH_OK;
}

int sh_wire__header(const unsigned char *p, struct sh_wire__header *out, struct sh_err *err)
{
    uint32_t len;
    uint16_t type;

    memcpy(&len, p, sizeof(len));
    memcpy(&type, p + 6, sizeof(type));
    *out = (struct sh_wire__header){.len = le32toh(len), .type = le16toh(type), .n_fds = p[5]};
    if (p[4] != SH_WIRE_VERSION && p[0] == 0x16 && p[1] == 3)
        return SH_FAIL(err, SH_E_PROTO, "the peer speaks TLS, and here is no --link-key-file");
    if (p[4] != SH_WIRE_VERSION)
        return SH_FAIL(err, SH_E_PROTO, "the peer speaks wire version %u, this program %u", p[4],
                       SH_WIRE_VERSION);
    if (strcmp(sh_msg_name((enum sh_msg_type)out->type), "?") == 0)
        return SH_FAIL(err, SH_E_PROTO, "message of unknown type %u", out->type);
    if (out->len > SH_WIRE_MAX_FRAME)
        return SH_FAIL(err, SH_E_PROTO, "message %s claims %u bytes, at most %u are allowed",
                       sh_msg_name((enum sh_msg_type)out->type), out->len, SH_WIRE_MAX_FRAME);
    if (out->n_fds > SH_WIRE_MAX_FDS)
        return SH_FAIL(err, SH_E_PROTO, "message %s claims %u descriptors, at most %d are allowed",
                       sh_msg_name((enum sh_msg_type)out->type), out->n_fds, SH_WIRE_MAX_FDS);
    return SH_OK;
}

void sh_wire__close_fds(int *fds, size_t *n_fds)
{
    for (size_t i = 0; i < *n_fds; i++)
        close(fds[i]);
    *n_fds = 0;
}

void sh_wire__attach(struct msghdr *mh, union sh_wire__control *c, const int *fds, size_t n_fds)
{
    struct cmsghdr *cm;

    if (n_fds == 0)
        return;
    memset(c, 0, sizeof(*c));
    mh->msg_control = c->bytes;
    mh->msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
    cm = CMSG_FIRSTHDR(mh);
    cm->cmsg_level = SOL_SOCKET;
    cm->cmsg_type = SCM_RIGHTS;
    cm->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
    memcpy(CMSG_DATA(cm), fds, n_fds * sizeof(int));
}

int sh_wire__detach(struct msghdr *mh, int *fds, size_t *n_fds, size_t max, struct sh_err *err)
{
    int rc = SH_OK;

    for (struct cmsghdr *cm = CMSG_FIRSTHDR(mh); cm; cm = CMSG_NXTHDR(mh, cm)) {
        size_t n;

        if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
            continue;
        n = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(cm) + i * sizeof(int), sizeof(fd));
            if (*n_fds < max) {
                fds[(*n_fds)++] = fd;
            } else {
                close(fd);
                rc = SH_FAIL(err, SH_E_PROTO, "the peer sent more descriptors than it announced");
            }
        }
    }
    if (!rc && mh->msg_flags & MSG_CTRUNC)
        rc = SH_FAIL(err, SH_E_PROTO,
                     "descriptors were lost: too many in one message, or too many open files");
    return rc;
}
