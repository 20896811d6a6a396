/*
 * hloom_test.c
 *	  Test switches of hloom_lock: what happens at its test points, per session.
 *
 * hloom_lock looks for a function in a rendezvous variable at each point; loading this module puts
 * one there.  The declarations are repeated here, since the header that has them is not installed.
 * Lock provider "test" is in test_provider.c.
 */
#include "postgres.h"

#include <signal.h>

#include "fmgr.h"
#include "miscadmin.h"

#include "utils/builtins.h"

PG_MODULE_MAGIC;

#define TEST_RENDEZVOUS "hloom_lock.test_point"

static const char *const point_names[] = {"flush", "granted", "split", "grow"};
static const char *const action_names[] = {"nothing", "skip", "error", "crash", "stop"};

typedef enum Action
{
	ACT_NOTHING,
	ACT_SKIP,					/* the point answers true */
	ACT_ERROR,
	ACT_CRASH,					/* the process is killed, the server restarts */
	ACT_STOP					/* the process stops itself; SIGCONT lets it go on */
} Action;

static Action actions[lengthof(point_names)];
static int64 hits[lengthof(point_names)];

void		_PG_init(void);
extern void test_provider_init(void);

static bool
at_point(int point)
{
	hits[point]++;
	switch (actions[point])
	{
		case ACT_NOTHING:
			return false;
		case ACT_SKIP:
			return true;
		case ACT_ERROR:
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("error at test point \"%s\"", point_names[point])));
			break;
		case ACT_CRASH:
			kill(MyProcPid, SIGKILL);
			break;
		case ACT_STOP:
			kill(MyProcPid, SIGSTOP);
			break;
	}
	return false;
}

static int
find_name(const text *given, const char *const *names, int count)
{
	char	   *name = text_to_cstring(given);

	for (int i = 0; i < count; i++)
		if (strcmp(name, names[i]) == 0)
			return i;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("test point or action \"%s\" is not known", name)));
}

PG_FUNCTION_INFO_V1(hloom_test_set);
Datum
hloom_test_set(PG_FUNCTION_ARGS)
{
	int			point = find_name(PG_GETARG_TEXT_PP(0), point_names, lengthof(point_names));

	actions[point] = find_name(PG_GETARG_TEXT_PP(1), action_names, lengthof(action_names));
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(hloom_test_hits);
Datum
hloom_test_hits(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(hits[find_name(PG_GETARG_TEXT_PP(0), point_names, lengthof(point_names))]);
}

PG_FUNCTION_INFO_V1(hloom_test_count);
Datum
hloom_test_count(PG_FUNCTION_ARGS)
{
	char	   *ns = text_to_cstring(PG_GETARG_TEXT_PP(0));
	void		(*add) (const char *name, int len, int stat, int64 amount);

	add = load_external_function("hloom_lock", "hloom_stats_add", true, NULL);
	add(ns, strlen(ns), PG_GETARG_INT32(1), PG_GETARG_INT64(2));
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(hloom_test_time);
Datum
hloom_test_time(PG_FUNCTION_ARGS)
{
	char	   *ns = text_to_cstring(PG_GETARG_TEXT_PP(0));
	void		(*add) (const char *name, int len, int timing, int64 usec);

	add = load_external_function("hloom_lock", "hloom_stats_time", true, NULL);
	add(ns, strlen(ns), PG_GETARG_INT32(1), PG_GETARG_INT64(2));
	PG_RETURN_VOID();
}

void
_PG_init(void)
{
	*find_rendezvous_variable(TEST_RENDEZVOUS) = (void *) at_point;
	test_provider_init();
}
