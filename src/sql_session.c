/*
 * sql_session.c
 *	  The leases of the session: hloom_release_session(), and what DISCARD ALL does for them.
 */
#include "postgres.h"

#include "fmgr.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"

#include "compat.h"
#include "handle.h"
#include "sql_args.h"
#include "sql_session.h"

PG_FUNCTION_INFO_V1(hloom_sql_release_session);

static ProcessUtility_hook_type prev_process_utility = NULL;

/*
 * Gives the session's leases back after DISCARD ALL, which has no transaction block around it.
 */
static void
process_utility(PlannedStmt *statement, const char *text, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *environment,
				DestReceiver *dest, QueryCompletion *completion)
{
	Node	   *command = statement->utilityStmt;
	bool		discard = IsA(command, DiscardStmt) &&
	((DiscardStmt *) command)->target == DISCARD_ALL;

	if (prev_process_utility)
		prev_process_utility(statement, text, read_only_tree, context, params, environment, dest,
							 completion);
	else
		standard_ProcessUtility(statement, text, read_only_tree, context, params, environment,
								dest, completion);
	if (discard)
		(void) hloom_handle_release_session();
}

/*
 * Installs the hook.  Called from _PG_init while the server preloads libraries.
 */
void
hloom_session_init(void)
{
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}

/*
 * SQL: hloom_release_session().
 */
Datum
hloom_sql_release_session(PG_FUNCTION_ARGS)
{
	hloom_args_require("hloom_release_session()", true);
	PG_RETURN_INT64(hloom_handle_release_session());
}
