/*
 * sql_args.h
 *	  Arguments of the SQL functions: checked, and put into a provider call.
 */
#ifndef HLOOM_SQL_ARGS_H
#define HLOOM_SQL_ARGS_H

#include "acquire.h"
#include "fmgr.h"

#define HLOOM_HANDLE_FIELDS 7	/* of type hloom_handle */

/* The ways to name a lease one holds. */
typedef enum HloomArgsForm
{
	HLOOM_ARGS_UUID,			/* namespace, key, owner uuid */
	HLOOM_ARGS_TEXT,			/* namespace, key, owner text */
	HLOOM_ARGS_HANDLE			/* hloom_handle */
} HloomArgsForm;

/* The options of a call that takes a lease, by their place after the first of them. */
typedef enum HloomArgsOption
{
	HLOOM_ARG_LEASE,
	HLOOM_ARG_MAX_WAIT,
	HLOOM_ARG_RETRY,
	HLOOM_ARG_AUTO_EXTEND,
	HLOOM_ARG_ON_LOST,
	HLOOM_ARG_SCOPE,
	HLOOM_ARG_OWNER,
	HLOOM_ARG_NOTE
} HloomArgsOption;

extern void hloom_args_require(const char *function, bool changes);
extern void hloom_args_name(HloomKey *name, HloomOptions *options, FunctionCallInfo fcinfo);
extern bool hloom_args_lease_of(HloomCall *call, HloomOptions *options, FunctionCallInfo fcinfo,
								HloomArgsForm form);
extern void hloom_args_acquisition(HloomAcquisition *acquisition, FunctionCallInfo fcinfo,
								   int first, bool retries, HloomScope scope);
extern int64 hloom_args_lease(FunctionCallInfo fcinfo, int lease, int64 otherwise);

#endif							/* HLOOM_SQL_ARGS_H */
