/*
 * worker_renew.h
 *	  Renews leases and warns of them, on behalf of their holders.
 */
#ifndef HLOOM_WORKER_RENEW_H
#define HLOOM_WORKER_RENEW_H

#include "utils/relcache.h"
#include "tracked.h"

/* So many are made durable together. */
#define HLOOM_RENEW_AT_ONCE 1024

extern void hloom_worker_renew(Relation rel, const HloomTrackedDue *due, int count);

#endif							/* HLOOM_WORKER_RENEW_H */
