/* platform.h - between world.c, loop.c and wire.c: what replaces the operating system. */
#ifndef SH_TESTS_SIM_PLATFORM_H
#define SH_TESTS_SIM_PLATFORM_H

#include "tests/sim/world.h"

struct sh_wire;

/* world.c */
void sim__each_proc(bool (*fn)(struct sim_proc *p, void *arg), void *arg); /* until fn says true */
void sim__proc_loop(struct sim_proc *p, struct sh_loop *l);
struct sh_loop *sim__loop_of(const struct sim_proc *p);
struct sim_proc *sim__proc_parent(const struct sim_proc *p); /* alive, or NULL */
void sim__proc_spawned(struct sim_proc *p, const struct sim_spawned *s);
const char *sim__child_name(const struct sim_proc *parent, const char *program);

/* loop.c */
void sim__loop_hook(struct sh_loop *l); /* before sleeping */
void sim__loop_child_died(struct sim_proc *parent, pid_t pid, int wait_status);
/* What stands for this end of a pair of sockets, and for the other; NULL: no such pair. */
struct sh_wire **sim__pair_end(int fd, struct sh_wire ***other);
bool sim__pair_is_orphan(int fd); /* the child that had the other end is dead */
/* Tells the wires whose other end the child never used. */
void sim__pairs_died(struct sim_proc *child, void (*orphaned)(struct sh_wire *));
int __wrap_kill(pid_t pid, int sig);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);
int __wrap_socketpair(int domain, int type, int protocol, int sv[2]);

/* wire.c */
void sim__wires_died(struct sim_proc *p, uint64_t generation);

#endif
