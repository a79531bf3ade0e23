/* param_joins.c - see param_joins.h. */
#include "runtime/model/param_joins.h"

#include "common/mem.h"
#include "runtime/model/param_rules.h"

#include <stdio.h>
#include <string.h>

#define MAX_NAME 256

static bool copy_next(char one[static MAX_NAME], const char *name, size_t n)
{
    if (n >= MAX_NAME)
        return false;
    memcpy(one, name, n);
    one[n] = '\0';
    return true;
}

/* What exporters call the result of moving numbers, or of sizes and literals inside of a call. */
static bool is_moved_so(const char *name)
{
    static const char *const MOVES[] = {
        "_unsafe_view",      "broadcast_to", "concat", "hstack",  "movedim",
        "repeat_interleave", "swapaxes",     "unbind", "view_as", "vstack"};
    bool is = param_is_moved(name) || strncmp(name, "val_", 4) == 0;

    for (size_t i = 0; i < SH_ARRAY_LEN(MOVES) && !is; i++)
        is = param_is_called(name, MOVES[i]);
    return is;
}

bool param_is_joined(const char *name, const char *list, const struct param_kinds *kinds)
{
    bool only = is_moved_so(name);
    size_t n = 0;
    int params = 0;

    for (const char *p = param_next_name(list, &n); p && only; p = param_next_name(p + n + 1, &n)) {
        char one[MAX_NAME];
        enum graph_said is = GRAPH_SAID_BUFFER;

        if (copy_next(one, p, n))
            is = param_kind(kinds, one);
        params += is == GRAPH_SAID_PARAM;
        only = is == GRAPH_SAID_PARAM || (is == GRAPH_SAID_NOTHING && is_moved_so(one));
    }
    return only && params > 1;
}

bool param_is_detached(const char *list)
{
    bool is = false;
    size_t n = 0;

    for (const char *p = param_next_name(list, &n); p && !is; p = param_next_name(p + n + 1, &n)) {
        char one[MAX_NAME];

        is = copy_next(one, p, n) && param_is_called(one, "detach");
    }
    return is;
}
