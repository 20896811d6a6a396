/*
 * guc.h
 *	  The settings hloom_lock.*.
 */
#ifndef HLOOM_GUC_H
#define HLOOM_GUC_H

#include "trace.h"

/* Durations are milliseconds. */
extern int	hloom_activity_history;
extern bool hloom_auto_extend;
extern int	hloom_default_lease;
extern bool hloom_detect_reentrancy;
extern bool hloom_enabled;
extern int	hloom_max_hold;
extern int	hloom_max_key_length;
extern int	hloom_max_lease;
extern int	hloom_max_tracked_leases;
extern int	hloom_memory_leases;
extern int	hloom_metrics_namespaces;
extern bool hloom_notify_lost;
extern char *hloom_provider_name;
extern int	hloom_reap_interval;
extern int	hloom_retry_jitter;
extern int	hloom_retry_limit;
extern int	hloom_retry_step;
extern bool hloom_strict_namespaces;

/* The client's, none when it told none. */
extern HloomSpan hloom_client_span;

extern void hloom_guc_init(void);

#endif							/* HLOOM_GUC_H */
