/* disk.h - what a simulated process does with files: real ones on a disk in memory, through calls
 * that can fail (the linker puts them in the place of the C library's).
 *
 * A process that is killed in the middle of such calls does nothing more: what it had written
 * stays, half of a file perhaps.
 */
#ifndef SH_TESTS_SIM_DISK_H
#define SH_TESTS_SIM_DISK_H

#include "tests/sim/world.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sim_disk {     /* of one host */
    bool is_full;     /* ENOSPC for what would grow */
    double fail;      /* chance of each call: EIO */
    double slow;      /* the disk thread takes so many times as long; 0: 1 */
    unsigned kill_in; /* the n-th call of a task from now on kills its process; 0: none does */
};
#define SIM_PROGRAMS "bin"      /* the folder of all programs */
void sim_disk_in_task(bool is); /* what comes is called by a task of the disk thread */
struct sim_disk *sim_disk(unsigned host);
uint64_t sim_disk_n_failed(void);                    /* calls, of all hosts, so far */
void sim_disk_on_rename(void (*fn)(const char *to)); /* after each rename of a process */
void sim_disk_spare(bool is); /* what comes is spared: files that clients have brought */

ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t off);
int __wrap_fsync(int fd);
int __wrap_rename(const char *from, const char *to);
int __wrap_unlink(const char *path);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_link(const char *from, const char *to);
int __wrap_posix_fallocate(int fd, off_t off, off_t len);
int __wrap_flock(int fd, int how);
int __wrap_open(const char *path, int flags, ...);
ssize_t __wrap_readlink(const char *path, char *out, size_t n);
int __wrap_sh_random(void *out, size_t n, void *err);

#endif
