/*
 * action.h
 *	  Runs the action of hloom_execute_with_lock and its kin.
 */
#ifndef HLOOM_ACTION_H
#define HLOOM_ACTION_H

#include "access/tupdesc.h"
#include "nodes/parsenodes.h"
#include "utils/array.h"
#include "utils/tuplestore.h"

typedef struct HloomAction
{
	/* Set by the caller. */
	const char *text;			/* one SQL command */
	ArrayType  *args;			/* values of $1 .. $n in text form, or NULL for none */
	Tuplestorestate *rows;		/* where its rows go, or NULL to drop them */
	TupleDesc	desc;			/* of rows */
	bool		json;			/* each row as one jsonb, desc has that one column */

	/* Set by hloom_action_check(). */
	RawStmt    *parsed;
} HloomAction;

extern void hloom_action_check(HloomAction *action);
extern uint64 hloom_action_run(const HloomAction *action);

#endif							/* HLOOM_ACTION_H */
