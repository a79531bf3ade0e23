/* hook.h - lets measurements (tests/lab/) change what a room or a worker does. Each of them
 * declares a table of hooks in its header. A release has no table; the default answer beside the
 * question then applies.
 */
#ifndef SH_COMMON_HOOK_H
#define SH_COMMON_HOOK_H

/* h: the table; NULL: none. */
#define HOOK_ASK(h, name, otherwise, ...) \
    ((h) ? (h)->name((h)->arg __VA_OPT__(, ) __VA_ARGS__) : (otherwise))
#define HOOK_TELL(h, name, ...)                             \
    do {                                                    \
        if (h)                                              \
            (h)->name((h)->arg __VA_OPT__(, ) __VA_ARGS__); \
    } while (0)

#endif
