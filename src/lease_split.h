/*
 * lease_split.h
 *	  Growth of the lease table by one bucket.
 */
#ifndef HLOOM_LEASE_SPLIT_H
#define HLOOM_LEASE_SPLIT_H

#include "utils/rel.h"

extern bool hloom_split_due(int live, Size bytes, TimestampTz now);
extern bool hloom_split_one(Relation rel);
extern void hloom_split_contained(Relation rel);

#endif							/* HLOOM_LEASE_SPLIT_H */
