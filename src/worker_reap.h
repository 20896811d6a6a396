/*
 * worker_reap.h
 *	  A worker's passes over all leases of its database.
 */
#ifndef HLOOM_WORKER_REAP_H
#define HLOOM_WORKER_REAP_H

#include "datatype/timestamp.h"
#include "utils/relcache.h"

extern bool hloom_worker_reap_is_due(void);
extern bool hloom_worker_reap(Relation rel, TimestampTz *next);
extern bool hloom_worker_reap_failed(TimestampTz again);
extern bool hloom_worker_reap_is_good(void);
extern void hloom_worker_reap_stop(void);
extern TimestampTz hloom_worker_reap_after(bool reloaded);

#endif							/* HLOOM_WORKER_REAP_H */
