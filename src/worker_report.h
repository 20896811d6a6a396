/*
 * worker_report.h
 *	  What a worker tells of leases: lines of the server log, and notifications.
 */
#ifndef HLOOM_WORKER_REPORT_H
#define HLOOM_WORKER_REPORT_H

#include "lease_grant.h"
#include "nodes/pg_list.h"

extern void hloom_report_threshold(const HloomGrantName *name, int64 lease, TimestampTz end);
extern void hloom_report_stopped(const HloomGrantName *name, const HloomTerms *terms);
extern void hloom_report_not_renewed(const HloomGrantName *name, int64 fence, const char *cause);
extern void hloom_report_table_locked(const int64 *fences, int count);
extern bool hloom_report_losses(List **notices);
extern void hloom_report_send(List *notices);

#endif							/* HLOOM_WORKER_REPORT_H */
