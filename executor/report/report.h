/* report.h - what higher rooms use to report to the scheduler and to people. */
#ifndef SH_EXECUTOR_REPORT_REPORT_H
#define SH_EXECUTOR_REPORT_REPORT_H

#include "executor/report/job_log.h"
#include "executor/report/outcomes.h"
#include "executor/report/uplink.h"
#include "executor/report/usage.h"

struct report {
    struct uplink uplink;
    struct outcomes outcomes;
    struct usage *usage; /* OWNED */
    struct job_logs logs;
};

#endif
