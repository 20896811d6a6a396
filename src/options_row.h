/*
 * options_row.h
 *	  Table hloom_namespaces: opening it, and what a valid row of it is.
 */
#ifndef HLOOM_OPTIONS_ROW_H
#define HLOOM_OPTIONS_ROW_H

#include "lib/stringinfo.h"
#include "options.h"
#include "storage/lockdefs.h"
#include "utils/rel.h"

/* The namespace, then the options: column 1 + HloomOption, counted from 0. */
#define HLOOM_NAMESPACES_COLUMNS (HLOOM_OPTIONS + 1)

/* Everything that is wrong with the options of a namespace. */
typedef struct HloomViolations
{
	int			sqlstate;		/* 0: nothing; of a single kind its own, else 22023 */
	StringInfoData list;		/* sentences; only when there is a violation */
} HloomViolations;

extern const char *const hloom_options_row_names[HLOOM_OPTIONS];

extern Relation hloom_options_row_open(LOCKMODE mode);
extern void hloom_options_row_check_columns(Relation rel);
extern void hloom_options_row_read(HloomOptions *options, const Datum *values, const bool *nulls,
								   HloomViolations *violations);
extern void hloom_options_row_violation(HloomViolations *violations, int sqlstate,
										const char *format,...) pg_attribute_printf(3, 4);
extern void hloom_options_row_judge(const HloomViolations *violations, const char *ns, int ns_len,
									const char *hint);

#endif							/* HLOOM_OPTIONS_ROW_H */
