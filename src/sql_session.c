/*
 * sql_session.c
 *	  SQL: hloom_release_session().
 */
#include "postgres.h"

#include "fmgr.h"

#include "compat.h"
#include "handle.h"
#include "sql_args.h"

PG_FUNCTION_INFO_V1(hloom_sql_release_session);

/*
 * SQL: hloom_release_session().
 */
Datum
hloom_sql_release_session(PG_FUNCTION_ARGS)
{
	hloom_args_require("hloom_release_session()", true);
	PG_RETURN_INT64(hloom_handle_release_session());
}
