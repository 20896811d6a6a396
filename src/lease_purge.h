/*
 * lease_purge.h
 *	  Rows that are nobody's go away, and those among them that were lost are counted.
 */
#ifndef HLOOM_LEASE_PURGE_H
#define HLOOM_LEASE_PURGE_H

#include "lease_bucket.h"
#include "losses.h"

extern void hloom_purge_count_lost(const HloomRow *row, HloomLossReason reason);
extern int	hloom_purge_page(Page page, const HloomJudge *judge, bool keep_lost);
extern void hloom_purge_bucket(const HloomBucket *bucket, const HloomJudge *judge);
extern void hloom_purge_after_split(const HloomBucket *bucket, const HloomJudge *judge);

#endif							/* HLOOM_LEASE_PURGE_H */
