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

/* The places of the options among the arguments of a call that takes a lease. */
typedef struct HloomArgsPlaces
{
	int			lease;
	int			max_wait;
	int			retry;
	int			auto_extend;	/* HLOOM_ARGS_ABSENT: the call has no such option */
	int			on_lost;		/* likewise */
	int			scope;
	int			owner;
	int			note;
} HloomArgsPlaces;

#define HLOOM_ARGS_ABSENT (-1)

/* All of them, one after the other. */
#define HLOOM_ARGS_PLACES_FROM(first) \
	{ \
		(first), (first) + 1, (first) + 2, (first) + 3, (first) + 4, (first) + 5, (first) + 6, \
		(first) + 7 \
	}

extern void hloom_args_require(const char *function, bool changes);
extern void hloom_args_name(HloomKey *name, HloomOptions *options, FunctionCallInfo fcinfo);
extern bool hloom_args_lease_of(HloomCall *call, HloomOptions *options, FunctionCallInfo fcinfo,
								HloomArgsForm form);
extern void hloom_args_acquisition(HloomAcquisition *acquisition, FunctionCallInfo fcinfo,
								   const HloomArgsPlaces *places, bool retries,
								   HloomScope scope);
extern int64 hloom_args_lease(FunctionCallInfo fcinfo, int lease, int64 otherwise);

#endif							/* HLOOM_SQL_ARGS_H */
