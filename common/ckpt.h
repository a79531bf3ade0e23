/* ckpt.h - the names of checkpoints in their job's folder: ckpt-<step>-<executor>.safetensors.
 *
 * Who writes one names itself: an executor that was given up and the one that took the job over
 * have no file in common. Earlier releases wrote ckpt-<step>.safetensors, which is read still.
 */
#ifndef SH_COMMON_CKPT_H
#define SH_COMMON_CKPT_H

#include <stdbool.h>
#include <stdint.h>

#define SH_CKPT_BYTES 128
#define SH_CKPT_EXECUTOR_MAX 63

/* May an executor be called so? Letters, digits, ".", "_" and "-", a letter or digit first. */
bool sh_ckpt_is_executor(const char *name);
void sh_ckpt_name(char out[static SH_CKPT_BYTES], int64_t step, const char *executor);
/* The step of a name; -1: not a checkpoint. A step of an executor has one name. _part: also of what
 * such a file is called before it is complete. */
int64_t sh_ckpt_step(const char *name);
int64_t sh_ckpt_part_step(const char *name);
/* The newest one in a folder of those before the step `below`: its step, and its name; -1, and "":
 * there is none. */
int64_t sh_ckpt_newest(const char *dir, int64_t below, char name[static SH_CKPT_BYTES]);

#endif
