/*
 * action.c
 *	  Runs the action of hloom_execute_with_lock and its kin.
 *
 * Checked before a lease is taken, as far as that goes without a lock on any table: parse analysis
 * locks what the action names, and would hold it through the wait for the lease.  Run with SPI, in
 * the caller's transaction and with its rights, each command with a new snapshot.  Values go to
 * the action as parameters, never into its text.  Knows nothing of leases.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "parser/parser.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"

#include "action.h"
#include "action_rows.h"

/* The parameters of an action, as the parser sees them. */
typedef struct Parameters
{
	Oid		   *types;
	int			count;
} Parameters;

/*
 * Error context callback: as SPI does it, a position is one in the action's text, and without one
 * the text is told as context.
 */
static void
tell_action(void *action)
{
	int			position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(action);
	}
	else
		errcontext("SQL statement \"%s\"", (const char *) action);
}

static void
push_context(ErrorContextCallback *frame, void (*callback) (void *), const void *arg)
{
	frame->callback = callback;
	frame->arg = unconstify(void *, arg);
	frame->previous = error_context_stack;
	error_context_stack = frame;
}

static void
check_args(const HloomAction *action)
{
	if (action->args != NULL && ARR_NDIM(action->args) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("args must be a one-dimensional array")));
}

/*
 * Parses the action.  Raises 22023 when it is empty or args has several dimensions, 42601 for what
 * is not one command, 2D000 for a transaction command, 0A000 for COPY to or from the client.
 * Looks at no table, takes no lock.
 */
void
hloom_action_check(HloomAction *action)
{
	ErrorContextCallback frame;
	List	   *commands;
	Node	   *command;

	check_args(action);
	push_context(&frame, tell_action, action->text);
	commands = raw_parser(action->text, RAW_PARSE_DEFAULT);
	error_context_stack = frame.previous;

	if (commands == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("action must not be empty")));
	if (list_length(commands) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("action must be a single command"),
				 errhint("Put several commands into a function or a DO block.")));
	action->parsed = linitial_node(RawStmt, commands);
	command = action->parsed->stmt;
	if (IsA(command, TransactionStmt))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("%s cannot be an action", CreateCommandName(command)),
				 errhint("An action is part of the transaction of its call.")));
	if (IsA(command, CopyStmt) && ((CopyStmt *) command)->filename == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot COPY to or from the client in an action"),
				 errhint("Use a query for COPY TO and INSERT for COPY FROM.")));
}

/*
 * Finds out the types of $1 .. $n, and makes the plan.  Analysis comes twice: SPI cannot tell the
 * types it finds.
 */
static SPIPlanPtr
prepare(const HloomAction *action, Parameters *parameters)
{
	ErrorContextCallback frame;
	SPIPlanPtr	plan;
	int			given = 0;

	if (action->args != NULL)
		given = ArrayGetNItems(ARR_NDIM(action->args), ARR_DIMS(action->args));

	push_context(&frame, tell_action, action->text);
	pg_analyze_and_rewrite_varparams(action->parsed, action->text,
									 &parameters->types, &parameters->count, NULL);
	error_context_stack = frame.previous;
	if (given != parameters->count)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("wrong number of args for the action"),
				 errdetail("Expected %d parameters but got %d.", parameters->count, given)));

	plan = SPI_prepare_cursor(action->text, parameters->count, parameters->types,
							  CURSOR_OPT_PARALLEL_OK);
	/* Cannot happen: it is NULL for arguments of a wrong form alone. */
	if (plan == NULL)
		elog(ERROR, "SPI_prepare_cursor failed: %s", SPI_result_code_string(SPI_result));
	return plan;
}

static void
tell_parameter(void *number)
{
	errcontext("parameter $%d of the action", *(int *) number);
}

/*
 * Reads args by the input functions of the parameters' types.
 */
static ParamListInfo
read_args(const HloomAction *action, const Parameters *parameters)
{
	ErrorContextCallback frame;
	ParamListInfo list = makeParamList(parameters->count);
	Datum	   *texts;
	bool	   *nulls;
	int			count;
	int			number;

	if (parameters->count == 0)
		return list;
	deconstruct_array(action->args, TEXTOID, -1, false, TYPALIGN_INT, &texts, &nulls, &count);
	push_context(&frame, tell_parameter, &number);
	for (number = 1; number <= parameters->count; number++)
	{
		ParamExternData *param = &list->params[number - 1];
		char	   *value = NULL;
		Oid			input;
		Oid			io_param;

		if (!nulls[number - 1])
			value = TextDatumGetCString(texts[number - 1]);
		param->ptype = parameters->types[number - 1];
		param->pflags = PARAM_FLAG_CONST;
		param->isnull = value == NULL;
		/* Also for NULL, which a domain may refuse. */
		getTypeInputInfo(param->ptype, &input, &io_param);
		param->value = OidInputFunctionCall(input, value, io_param, -1);
	}
	error_context_stack = frame.previous;
	return list;
}

/*
 * Raises 42601 for an action that is to return rows and is of a kind that never does.
 */
static void
require_rows(SPIPlanPtr plan)
{
	CachedPlanSource *source = linitial(SPI_plan_get_plan_sources(plan));
	const char *name;

	if (source->resultDesc != NULL)
		return;
	/* SELECT INTO has the tag of a SELECT. */
	name = source->commandTag == CMDTAG_SELECT ? "SELECT INTO" :
		GetCommandTagName(source->commandTag);
	ereport(ERROR,
			(errcode(ERRCODE_SYNTAX_ERROR),
			 errmsg("%s query does not return tuples", name),
			 errhint("Use hloom_execute_with_lock() for a command without rows.")));
}

/*
 * Runs a checked action and returns the number of rows it processed; 0 for commands that tell
 * none.  Raises the action's own error, 22023 for a wrong number of args, 42601 where rows are
 * asked for and it returns none, 42804 where they do not fit.
 */
uint64
hloom_action_run(const HloomAction *action)
{
	SPIExecuteOptions options = {0};
	Parameters	parameters = {0};
	SPIPlanPtr	plan;
	uint64		rows;
	int			code;

	SPI_connect();
	plan = prepare(action, &parameters);
	if (action->rows != NULL)
		require_rows(plan);
	options.params = read_args(action, &parameters);
	options.dest = hloom_action_rows_create(action);
	code = SPI_execute_plan_extended(plan, &options);
	/* Cannot happen: what SPI does not do has been refused by hloom_action_check(). */
	if (code < 0)
		elog(ERROR, "SPI_execute_plan_extended failed: %s", SPI_result_code_string(code));

	/* SPI does not count the rows of EXPLAIN, SHOW and other utility commands. */
	rows = Max(SPI_processed, hloom_action_rows_count(options.dest));
	SPI_finish();
	return rows;
}
