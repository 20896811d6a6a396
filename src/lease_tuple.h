/*
 * lease_tuple.h
 *	  Rows of the lease table as tuples of hloom_leases.
 */
#ifndef HLOOM_LEASE_TUPLE_H
#define HLOOM_LEASE_TUPLE_H

#include "access/htup.h"
#include "lease_page.h"
#include "storage/itemptr.h"

/* A row copied out of its page. */
typedef struct HloomCopy
{
	ItemPointerData at;
	HloomRow   *row;
} HloomCopy;

extern void hloom_tuple_check_columns(Relation rel);
extern HeapTuple hloom_tuple_form(Relation rel, const HloomCopy *copy, bool hide_owner);

#endif							/* HLOOM_LEASE_TUPLE_H */
