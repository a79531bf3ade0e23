/* cpu_mem.h - the memory face of the cpu back end; only its own files include this.
 *
 * The arena is one sealed memfd, the ticket page another; a worker maps both. Each lane is a thread
 * that takes commands from a bounded ring, so a lane behaves like a copy engine's queue: enqueueing
 * never blocks, and a full ring is SH_E_QUEUEFULL.
 *
 * Slowed copies: each direction is one link that all its lanes share, as with PCIe; further links
 * are as slow as the first. A copy occupies its link from max(enqueued, lane free, link free) for
 * latency + bytes / rate, computed on the clock and not measured: a late wake-up of one copy does
 * not delay the next one, so a sequence of copies takes exactly as long as the rate says.
 */
#ifndef SH_RUNTIME_DEVICE_CPU_CPU_MEM_H
#define SH_RUNTIME_DEVICE_CPU_CPU_MEM_H

#include "runtime/device/backend.h"

int cpu__mem_open(const struct dev_mem_conf *c, struct dev_mem **out, struct sh_err *err);
void cpu__mem_close(struct dev_mem *m);
int cpu__mem_export(const struct dev_mem *m, int *fds, size_t *n_fds, struct sh_err *err);
int cpu__mem_copy(struct dev_mem *m, uint32_t lane, enum dev_dir dir, size_t off, void *host,
                  size_t bytes, struct sh_err *err);
int cpu__mem_move(struct dev_mem *m, uint32_t lane, size_t dst, size_t src, size_t bytes,
                  struct sh_err *err);
int cpu__mem_zero(struct dev_mem *m, uint32_t lane, size_t off, size_t bytes, struct sh_err *err);
int cpu__mem_ticket(struct dev_mem *m, uint32_t lane, uint32_t slot, uint32_t value,
                    struct sh_err *err);
int cpu__mem_mark(struct dev_mem *m, uint32_t lane, uint64_t cookie, struct sh_err *err);
int cpu__mem_follow(struct dev_mem *m, uint32_t lane, uint32_t after, struct sh_err *err);
int cpu__mem_event_fd(const struct dev_mem *m);
bool cpu__mem_next_mark(struct dev_mem *m, uint64_t *cookie);
void cpu__ticket_force(struct dev_mem *m, uint32_t slot, uint32_t value);
uint32_t cpu__ticket_value(const struct dev_mem *m, uint32_t slot);

#endif
