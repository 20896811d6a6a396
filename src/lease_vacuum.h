/*
 * lease_vacuum.h
 *	  VACUUM and ANALYZE of the lease table.
 */
#ifndef HLOOM_LEASE_VACUUM_H
#define HLOOM_LEASE_VACUUM_H

#include "compat.h"

extern void hloom_vacuum_rel(Relation rel, struct VacuumParams *params,
							 BufferAccessStrategy strategy);
extern bool hloom_vacuum_next_block(TableScanDesc sscan, HLOOM_ANALYZE_BLOCK_ARGS);
extern bool hloom_vacuum_next_tuple(TableScanDesc sscan, TransactionId oldest_xmin, double *live,
									double *dead, TupleTableSlot *slot);

#endif							/* HLOOM_LEASE_VACUUM_H */
