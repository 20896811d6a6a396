/*
 * lease_reap.h
 *	  Removes expired rows that nobody has needed the place of.
 */
#ifndef HLOOM_LEASE_REAP_H
#define HLOOM_LEASE_REAP_H

#include "datatype/timestamp.h"
#include "utils/relcache.h"

/* How far a pass over the table has come. */
typedef struct HloomReap
{
	uint32		bucket;			/* the next to look at */
	TimestampTz next;			/* no lease it has seen ends before; DT_NOEND when it saw none */
	int64		reaped;			/* leases, each of them lost */
} HloomReap;

extern void hloom_reap_begin(HloomReap *reap);
extern bool hloom_reap_some(Relation rel, HloomReap *reap);

#endif							/* HLOOM_LEASE_REAP_H */
