/*
 * contain.c
 *	  Runs something whose error is not to end the statement.
 *
 * In a subtransaction, so that after its error the transaction is usable.  What to make of the
 * error is the caller's, also of a cancel, which counts as delivered.  A FATAL error is not
 * contained.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "contain.h"

/*
 * Runs it in the current memory context.  Returns NULL, or the error that ended it and undid what
 * it wrote, palloc'd.  Raises what beginning a subtransaction raises.
 */
ErrorData *
hloom_contain(void (*run) (void *arg), void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		run(arg);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return error;
}
