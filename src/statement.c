/*
 * statement.c
 *	  Where a statement of the client begins and ends: the hooks of executor and utility commands.
 *
 * Only the outermost call counts: what it runs in turn, through SPI or as EXECUTE or CALL do, is
 * part of it.  The error of a lost lease is raised here and nowhere deeper, where an exception
 * block could trap it.  Commands that end a transaction or clean a session up are let through.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"

#include "compat.h"
#include "handle.h"
#include "loss.h"
#include "statement.h"
#include "truncation.h"

static ExecutorRun_hook_type prev_executor_run = NULL;
static ExecutorFinish_hook_type prev_executor_finish = NULL;
static ProcessUtility_hook_type prev_process_utility = NULL;

/* The outermost call is running. */
static bool inside = false;

typedef void (*Runner) (void *arg);

/*
 * Runs the outermost call.
 */
static void
run_outermost(Runner run, void *arg, bool exempt)
{
	hloom_loss_begin(exempt);
	inside = true;
	PG_TRY();
	{
		run(arg);
	}
	PG_CATCH();
	{
		inside = false;
		hloom_loss_failed();
		PG_RE_THROW();
	}
	PG_END_TRY();
	inside = false;
	hloom_loss_end(exempt);
}

static void
run_executor(void *arg)
{
	HloomExecutorRun *call = (HloomExecutorRun *) arg;

	if (prev_executor_run)
		prev_executor_run(HLOOM_EXECUTOR_RUN_PASS(call->));
	else
		standard_ExecutorRun(HLOOM_EXECUTOR_RUN_PASS(call->));
}

static void
executor_run(HLOOM_EXECUTOR_RUN_ARGS)
{
	HloomExecutorRun call = {HLOOM_EXECUTOR_RUN_PASS()};

	if (inside)
		run_executor(&call);
	else
		run_outermost(run_executor, &call, false);
}

static void
finish_executor(void *arg)
{
	if (prev_executor_finish)
		prev_executor_finish((QueryDesc *) arg);
	else
		standard_ExecutorFinish((QueryDesc *) arg);
}

/*
 * Here the AFTER triggers run.
 */
static void
executor_finish(QueryDesc *query)
{
	if (inside)
		finish_executor(query);
	else
		run_outermost(finish_executor, query, false);
}

typedef struct UtilityCall
{
	PlannedStmt *statement;
	const char *source;
	bool		read_only_tree;
	ProcessUtilityContext context;
	ParamListInfo params;
	QueryEnvironment *environment;
	DestReceiver *dest;
	QueryCompletion *completion;
} UtilityCall;

static void
run_utility(void *arg)
{
	UtilityCall *call = (UtilityCall *) arg;
	ProcessUtility_hook_type run = prev_process_utility ? prev_process_utility :
	standard_ProcessUtility;

	run(call->statement, call->source, call->read_only_tree, call->context, call->params,
		call->environment, call->dest, call->completion);
}

/*
 * Whether the command must run though a lease is lost: it ends the transaction, or clears up.
 */
static bool
is_exempt(const Node *command)
{
	if (IsA(command, DiscardStmt))
		return true;
	if (!IsA(command, TransactionStmt))
		return false;
	switch (((const TransactionStmt *) command)->kind)
	{
		case TRANS_STMT_COMMIT:
		case TRANS_STMT_ROLLBACK:
		case TRANS_STMT_ROLLBACK_TO:
			return true;
		default:
			return false;
	}
}

static void
process_utility(PlannedStmt *statement, const char *source, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *environment,
				DestReceiver *dest, QueryCompletion *completion)
{
	UtilityCall call = {statement, source, read_only_tree, context, params, environment, dest,
	completion};
	Node	   *command = statement->utilityStmt;
	NodeTag		tag = nodeTag(command);
	bool		discards = IsA(command, DiscardStmt) &&
	((DiscardStmt *) command)->target == DISCARD_ALL;

	if (inside)
		run_utility(&call);
	else
		run_outermost(run_utility, &call, is_exempt(command));

	/* The statement may be gone by now. */
	if (tag == T_TruncateStmt)
		hloom_truncation_note();
	if (discards)
		(void) hloom_handle_release_session();
}

/*
 * Installs the hooks.  Called from _PG_init while the server preloads libraries.
 */
void
hloom_statement_init(void)
{
	prev_executor_run = ExecutorRun_hook;
	ExecutorRun_hook = executor_run;
	prev_executor_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = executor_finish;
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}
