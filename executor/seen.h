/* seen.h - the shapes of a version that were used, in a file, so that they are compiled again after
 * a start, before anybody asks for them: <state-dir>/shapes/<executor>.<package>, a line for each,
 * the most used first, at most half of --model-shapes. It follows within seconds; it is removed
 * when the version is unloaded. What is damaged in it is left out: it is a hint.
 */
#ifndef SH_EXECUTOR_SEEN_H
#define SH_EXECUTOR_SEEN_H

#include "executor/store.h"

/* Its shapes, to be compiled when nothing else is. */
void seen_bring(struct model *version);
/* Once a second: writes what has changed. */
void seen_second(struct store *s);
void seen_forget(struct model *version);

#endif
