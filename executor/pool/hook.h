/* hook.h - where a measurement may change what a room does (executor/lab/). Each such room has a
 * table of questions in its header. A release has none: then the answer is the one beside the
 * question.
 */
#ifndef SH_EXECUTOR_POOL_HOOK_H
#define SH_EXECUTOR_POOL_HOOK_H

/* h: the table, or NULL. */
#define HOOK_ASK(h, name, otherwise, ...) \
    ((h) ? (h)->name((h)->arg __VA_OPT__(, ) __VA_ARGS__) : (otherwise))
#define HOOK_TELL(h, name, ...)                             \
    do {                                                    \
        if (h)                                              \
            (h)->name((h)->arg __VA_OPT__(, ) __VA_ARGS__); \
    } while (0)

#endif
