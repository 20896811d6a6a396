/*
 * lease_place.h
 *	  Where a row of the lease table is written.
 */
#ifndef HLOOM_LEASE_PLACE_H
#define HLOOM_LEASE_PLACE_H

#include "access/xlogdefs.h"
#include "lease_walk.h"
#include "losses.h"

extern XLogRecPtr hloom_place_overwrite(const HloomBucket *bucket, ItemPointer at,
										const HloomRow *row, Size size);
extern XLogRecPtr hloom_place_row(const HloomBucket *bucket, HloomWalk *walk, const HloomRow *row);
extern XLogRecPtr hloom_place_renewal(const HloomBucket *bucket, HloomWalk *walk, HloomRow *row);
extern void hloom_place_count_lost(const HloomCall *call, const HloomRow *head,
								   HloomLossReason reason);

#endif							/* HLOOM_LEASE_PLACE_H */
