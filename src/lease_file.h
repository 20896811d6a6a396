/*
 * lease_file.h
 *	  The lease table's file as a whole: making, emptying, moving, rewriting it.
 */
#ifndef HLOOM_LEASE_FILE_H
#define HLOOM_LEASE_FILE_H

#include "compat.h"

extern void hloom_file_set_new(Relation rel, const HloomFile *file, char persistence,
							   TransactionId *freeze_xid, MultiXactId *min_multi);
extern void hloom_file_truncate(Relation rel);
extern void hloom_file_copy_data(Relation rel, const HloomFile *file);
extern void hloom_file_rewrite(Relation from, Relation to, Relation index, bool use_sort,
							   TransactionId oldest_xmin, TransactionId *xid_cutoff,
							   MultiXactId *multi_cutoff, double *tuples, double *vacuumed,
							   double *recently_dead);

#endif							/* HLOOM_LEASE_FILE_H */
