/* console.c - see console.h. */
#include "api/console/console.h"

#include "api/api.h"
#include "api/console/docs.h"
#include "api/handlers.h"
#include "api/http/constant.h"
#include "api/request/noun.h"
#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

/* Trusted types: a browser refuses to make markup or script of a text, whoever asks for it. */
const char CONSOLE_POLICY[] =
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'";

#define HTML "text/html; charset=utf-8"
#define CSS "text/css; charset=utf-8"
#define JS "text/javascript; charset=utf-8"
#define SVG "image/svg+xml"

/* The bytes of each file, from the folder in which the build runs. */
#define FILE(id, name, media)                                                            \
    extern const char console_##id[], console_##id##_end[];                              \
    __asm__(".pushsection .rodata\nconsole_" #id ":\n.incbin \"api/console/" name "\"\n" \
            "console_" #id "_end:\n.byte 0\n.popsection\n");
#include "api/console/files.def"
#undef FILE

static const struct file {
    const char *name, *type, *begin, *end;
} FILES[] = {
#define FILE(id, name, media) {name, media, console_##id, console_##id##_end},
#include "api/console/files.def"
#undef FILE
};

/* A line of the page, for servers that have the documentation. */
#define DOCS_LINE "<a class=\"docs\" href=\"/docs/\">Documentation</a>\n"

struct console {
    struct constant files[SH_ARRAY_LEN(FILES)]; /* as in FILES; the first is the page itself */
    struct constant without_docs;               /* the page, without that line */
    char *text;                                 /* OWNED: its text */
};

static int make_page_without_docs(struct console *c, struct sh_err *err)
{
    const char *all = FILES[0].begin, *at = strstr(all, DOCS_LINE);
    int rc;

    if (!at)
        return SH_FAIL(err, SH_E_BUG, "the page of the console has no link to the documentation");
    rc = sh_asprintf(err, &c->text, "%.*s%s", (int)(at - all), all, at + strlen(DOCS_LINE));
    return rc ? rc : constant_init(&c->without_docs, c->text, strlen(c->text), HTML, err);
}

int console_new(struct console **out, struct sh_err *err)
{
    struct console *c = calloc(1, sizeof(*c));
    int rc = c ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate the console");

    *out = NULL;
    for (size_t i = 0; !rc && i < SH_ARRAY_LEN(FILES); i++)
        rc = constant_init(&c->files[i], FILES[i].begin, (size_t)(FILES[i].end - FILES[i].begin),
                           FILES[i].type, err);
    if (!rc)
        rc = make_page_without_docs(c, err);
    if (rc) {
        console_free(c);
        return rc;
    }
    *out = c;
    return SH_OK;
}

void console_free(struct console *c)
{
    for (size_t i = 0; c && i < SH_ARRAY_LEN(FILES); i++)
        constant_fini(&c->files[i]);
    if (c) {
        constant_fini(&c->without_docs);
        free(c->text);
    }
    free(c);
}

static int reply_with_file(struct api_req *q, const struct constant *file)
{
    q->reply.policy = CONSOLE_POLICY;
    constant_reply(file, q);
    return SH_OK;
}

int console_page(struct api_req *q, struct sh_err *err)
{
    const struct console *c = q->api->console;

    (void)err;
    return reply_with_file(q, docs_are_there(q) ? &c->files[0] : &c->without_docs);
}

int console_file(struct api_req *q, struct sh_err *err)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(FILES); i++)
        if (strcmp(FILES[i].name, q->params[0]) == 0)
            return reply_with_file(q, &q->api->console->files[i]);
    return noun_missing("file of the console", q->params[0], err);
}
