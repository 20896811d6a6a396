/*
 * lease_table.h
 *	  The lease table of this database: which one it is, opening it within a bound.
 */
#ifndef HLOOM_LEASE_TABLE_H
#define HLOOM_LEASE_TABLE_H

#include "access/tableam.h"
#include "datatype/timestamp.h"
#include "hloom.h"
#include "storage/lockdefs.h"
#include "utils/rel.h"

/* The access method, filled by lease_am.c; its address tells our table from others. */
extern const TableAmRoutine hloom_am_routine;

extern Oid	hloom_table_schema(void);
pg_noreturn extern void hloom_table_no_extension(void);
extern Oid	hloom_table_oid(void);
extern bool hloom_table_lock(Oid table, LOCKMODE mode, TimestampTz deadline);
extern Relation hloom_table_open(LOCKMODE mode, TimestampTz deadline);
extern void hloom_table_close(Relation rel, LOCKMODE mode);
extern bool hloom_table_has_new_file(void);
extern bool hloom_table_is_ours(Relation rel);

#endif							/* HLOOM_LEASE_TABLE_H */
