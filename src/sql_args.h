/*
 * sql_args.h
 *	  Arguments of the SQL functions: checked, and put into a provider call.
 */
#ifndef HLOOM_SQL_ARGS_H
#define HLOOM_SQL_ARGS_H

#include "fmgr.h"
#include "hloom.h"

#define HLOOM_HANDLE_FIELDS 7	/* of type hloom_handle */

/* The ways to name a lease one holds. */
typedef enum HloomArgsForm
{
	HLOOM_ARGS_UUID,			/* namespace, key, owner uuid */
	HLOOM_ARGS_TEXT,			/* namespace, key, owner text */
	HLOOM_ARGS_HANDLE			/* hloom_handle */
} HloomArgsForm;

extern void hloom_args_require(const char *function, bool changes);
extern void hloom_args_name(HloomCall *call, FunctionCallInfo fcinfo, int ns, int key);
extern bool hloom_args_lease_of(HloomCall *call, FunctionCallInfo fcinfo, HloomArgsForm form);
extern void hloom_args_owner_or_new(HloomCall *call, FunctionCallInfo fcinfo, int owner);
extern int64 hloom_args_lease(FunctionCallInfo fcinfo, int lease, int64 otherwise);
extern void hloom_args_note(HloomCall *call, FunctionCallInfo fcinfo, int note);
extern bool hloom_args_on_lost(FunctionCallInfo fcinfo, int on_lost);
extern HloomScope hloom_args_scope(FunctionCallInfo fcinfo, int scope);

#endif							/* HLOOM_SQL_ARGS_H */
