/*
 * lease_store.h
 *	  One lease of an open lease table: claim, release, extend, look.
 */
#ifndef HLOOM_LEASE_STORE_H
#define HLOOM_LEASE_STORE_H

#include "access/xlogdefs.h"
#include "hloom.h"
#include "utils/rel.h"

#include "lease_walk.h"

/* What a change left for the caller to do: the end of its WAL record, or invalid for none. */
typedef struct HloomChange
{
	XLogRecPtr	lsn;
	bool		fresh;			/* a new grant, not a renewal of one the owner had */
	bool		longer;			/* somebody is excluded longer: must be durable before it is told */
	TimestampTz at;				/* clock of the change */
} HloomChange;

extern void hloom_store_note_change(HloomChange *change, XLogRecPtr lsn, const HloomWalk *walk,
									bool fresh, bool longer);

/* lease_claim.c */
extern bool hloom_store_claim(Relation rel, const HloomCall *call, HloomGrant *grant,
							  HloomChange *change);

/* lease_store.c */
extern bool hloom_store_release(Relation rel, const HloomCall *call, const HloomGrant *grant,
								HloomChange *change);
extern bool hloom_store_take_away(Relation rel, const HloomCall *call, HloomGrant *grant,
								  HloomChange *change);
extern bool hloom_store_extend(Relation rel, const HloomCall *call, HloomGrant *grant,
							   HloomChange *change);
extern bool hloom_store_holder(Relation rel, const HloomCall *call, HloomGrant *grant);
extern bool hloom_store_look(Relation rel, const HloomCall *call, HloomGrant *grant);

#endif							/* HLOOM_LEASE_STORE_H */
