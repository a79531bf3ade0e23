/* exec_faults.h - what may befall one real executor: its workers, its device, its disk. Each lasts
 * for a while and says so to the oracles (oracles_exec_disturbed). r: chance, as a scenario's
 * faults have it. */
#ifndef SH_TESTS_SIM_EXEC_FAULTS_H
#define SH_TESTS_SIM_EXEC_FAULTS_H

#include "tests/sim/executor.h"

int64_t exec_fault_time(uint64_t r); /* of one that lasts for a while */
/* One of its workers dies, or stands still. */
void exec_fault_worker(struct sim_exec *e, const uint64_t r[static 3]);
/* A time in which each thing that workers do may go wrong: those of all executors. */
void exec_fault_workers(const uint64_t r[static 3]);
/* A time in which they say what is not so. What one says of a model or a job can make that fail for
 * good: for scenarios that do not ask for the opposite. */
void exec_fault_lies(const uint64_t r[static 3]);
/* A time in which most workers do not get as far as their device. */
void exec_fault_starts(const uint64_t r[static 3]);
/* Its workers' folder is full of files. */
void exec_fault_folder(const struct sim_exec *e, const uint64_t r[static 3]);
/* Memory is refused, or is not locked; copies stall. */
void exec_fault_device(struct sim_exec *e, const uint64_t r[static 3]);
/* The disk of a host is full, fails, is slow; or its executor is killed in a write. */
void exec_fault_disk(unsigned host, const uint64_t r[static 3]);

/* Executors are refused memory, descriptors and the like, now and then: all of them. */
void exec_fault_shortage(const uint64_t r[static 3]);

/* All of them end. One after the other may overlap; the last one that ends, ends all. */
void exec_calm_workers(void);
void exec_calm_device(struct sim_exec *e);
void exec_calm_disk(unsigned host);
void exec_calm_shortage(void);

#endif
