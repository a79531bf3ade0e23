/* wire_keys.h - the key shared by our processes, so that nobody else can talk to them over TCP.
 *
 * With a key every TCP connection is TLS 1.3 with that key (wire_tls.c); there are no certificates.
 * Without one TCP stays on this host: an address that others can reach is refused at start. Unix
 * sockets need no key: the mode of their folder decides who may connect.
 *
 * The file has one key a line, at least 32 random bytes in hexadecimal or base64; blank lines and
 * comments (#) are allowed. Clients use the first key; servers accept the second too. The file is
 * read again when it changes, so that a key can be replaced without a restart: put the new one
 * second everywhere, then first everywhere, then alone. Open connections stay. While a changed file
 * is invalid the old keys remain in use, and the log says so.
 *
 * Belongs to the thread whose loop has the connections.
 */
#ifndef SH_COMMON_WIRE_KEYS_H
#define SH_COMMON_WIRE_KEYS_H

#include "common/conf.h"

struct sh_wire_key_conf {
    char *key_file;
    bool plaintext;
};

#define SH_OPTS_WIRE_KEY(st, field)                                                               \
    SH_OPT_STR(st, field.key_file, "link-key-file", "", 0,                                        \
               "file with the key that all processes of a system share (openssl rand -hex 32), "  \
               "mode 0600; a second line is accepted too; needed for a tcp: address that is not " \
               "loopback; read again when it changes"),                                           \
        SH_OPT_BOOL(st, field.plaintext, "link-plaintext", false, 0,                              \
                    "tcp: without --link-key-file also to other hosts: anybody who reaches the "  \
                    "port reads tenants' data and can pose as an executor")

struct sh_wire_keys;
/* Reads the file, if there is one, and checks the process's addresses (comma-separated lists; the
 * last is NULL). c: BORROWED for the call. *out: OWNED, sh_wire_keys_free(). Fails: SH_E_INVALID,
 * saying what to do. */
int sh_wire_keys_open(const struct sh_wire_key_conf *c, const char *const *addrs,
                      struct sh_wire_keys **out, struct sh_err *err);
void sh_wire_keys_free(struct sh_wire_keys *k); /* after all its users; NULL is allowed */

#endif
