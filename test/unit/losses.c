/*
 * losses.c
 *	  Unit test of the queue of lost leases: what fits, what is dropped, what each database gets.
 *
 * The server's part is played here: one process, and a lock that tells whether it is held.
 */
#include "postgres.h"

#include <stdio.h>
#include <stdlib.h>

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include "losses.h"
#include "shmem.h"
#include "stats.h"
#include "work.h"

/* PostgreSQL's own printf would need its library. */
#undef printf
#undef snprintf

Oid			MyDatabaseId = 1;
HloomWork  *hloom_work_mine = NULL;

void
hloom_work_lower_due(TimestampTz due)
{
}

static LWLockPadded locks[HLOOM_LWLOCKS];
static int	locked = 0;
static int64 counted = 0;
static int	failed = 0;

LWLockPadded *
GetNamedLWLockTranche(const char *name)
{
	return locks;
}

bool
LWLockAcquire(LWLock *lock, LWLockMode mode)
{
	locked++;
	return true;
}

void
LWLockRelease(LWLock *lock)
{
	locked--;
}

TimestampTz
GetCurrentTimestamp(void)
{
	return 0;
}

void *
palloc(Size size)
{
	if (locked)
	{
		printf("not ok - memory is taken while the lock is held\n");
		failed++;
	}
	return malloc(size);
}

void
pfree(void *pointer)
{
	free(pointer);
}

int
hloom_stats_place(Oid database, const char *ns, int ns_len)
{
	return (int) database;
}

void
hloom_stats_add_at(int place, HloomStat stat, int64 amount)
{
	counted += stat == HLOOM_STAT_LOST ? amount : 0;
}

#ifdef USE_ASSERT_CHECKING
void
ExceptionalCondition(const char *condition, const char *file, int line)
{
	abort();
}
#endif

static void
check(bool good, const char *what)
{
	printf("%s - %s\n", good ? "ok" : "not ok", what);
	failed += !good;
}

/* A key of so many bytes that ends with its number. */
static void
add(Oid database, int64 n, int length)
{
	char		key[HLOOM_MAX_KEY_CHARS * 4 + 1];
	HloomLoss	loss = {
		.ns = "ns",
		.key = key,
		.ns_len = 2,
		.key_len = length,
		.fence = n,
		.granted_at = n * 9,
		.expired_at = n * 10,
		.reason = HLOOM_LOSS_EXPIRED,
		.holder_role = 7,
		.holder_pid = 8
	};

	memset(key, 'k', length);
	snprintf(key + length - 12, 13, "%012lld", (long long) n);
	MyDatabaseId = database;
	hloom_losses_add(database, &loss);
}

/* Whether a loss is that of this number, with a key of such a length. */
static bool
is_loss(const HloomLoss *loss, int64 n, int length)
{
	char		end[13];

	snprintf(end, sizeof(end), "%012lld", (long long) n);
	return loss->fence == n && loss->granted_at == n * 9 && loss->expired_at == n * 10 &&
		loss->ns_len == 2 && memcmp(loss->ns, "ns", 2) == 0 && loss->key_len == length &&
		memcmp(loss->key + length - 12, end, 12) == 0 &&
		loss->reason == HLOOM_LOSS_EXPIRED && loss->holder_role == 7 && loss->holder_pid == 8;
}

/*
 * Takes all losses of a database, which must be numbered from first on, and have keys of such a
 * length.  Returns how many there were.
 */
static int
take(Oid database, int64 first, int length, int64 *dropped)
{
	HloomLosses *losses;
	int			count = 0;

	MyDatabaseId = database;
	*dropped = 0;
	while ((losses = hloom_losses_take()) != NULL)
	{
		*dropped += losses->dropped;
		for (int i = 0; i < losses->count; i++)
		{
			if (!is_loss(&losses->loss[i], first + count, length))
			{
				check(false, "a loss is told as it was");
				return -1;
			}
			count++;
		}
		pfree(losses);
	}
	return count;
}

/* What is shown: losses whose numbers grow by one, the last of which is known. */
typedef struct Shown
{
	int			count;
	int64		last;
	int			length;
	bool		good;
} Shown;

static void
look_at(const HloomLoss *loss, void *arg)
{
	Shown	   *shown = (Shown *) arg;

	if (locked)
		shown->good = false;
	if (shown->count > 0 && loss->fence != shown->last + 1)
		shown->good = false;
	if (!is_loss(loss, loss->fence, shown->length))
		shown->good = false;
	shown->last = loss->fence;
	shown->count++;
}

/* Returns how many losses of a database are shown, the last of this number, or -1. */
static int
show(Oid database, int64 last, int length)
{
	Shown		shown = {.length = length,.good = true};

	MyDatabaseId = database;
	hloom_losses_visit(look_at, &shown);
	return shown.good && (shown.count == 0 || shown.last == last) ? shown.count : -1;
}

int
main(void)
{
	int64		dropped;
	int			count;
	void	   *memory = aligned_alloc(64, (hloom_losses_size() + 63) / 64 * 64);

	add(1, 1, 100);
	check(counted == 0, "without shared memory nothing is counted");
	hloom_losses_start(memory, false);
	check(take(1, 0, 0, &dropped) == 0 && !hloom_losses_are_many(), "there are none at first");

	for (int i = 0; i < 500; i++)
		add(1, i, 512);
	check(hloom_losses_are_many(), "500 are many");
	check(take(1, 0, 512, &dropped) == 500 && dropped == 0, "but they fit, oldest first");
	check(!hloom_losses_are_many() && counted == 500 && !hloom_losses_are_any(),
		  "and are reported then");
	check(show(1, 499, 512) == 500, "but still shown");
	check(show(2, 0, 0) == 0, "and not to another database");

	for (int i = 0; i < 100; i++)
	{
		add(1, 2 * i, 12);
		add(2, i, 4096);
		add(1, 2 * i + 1, 12);
	}
	check(take(1, 0, 12, &dropped) == 200, "each database gets its own");
	check(take(2, 0, 4096, &dropped) == 100, "and so does the other");
	check(take(1, 0, 0, &dropped) == 0, "and nothing twice");

	/* A database that nobody reports for. */
	for (int i = 0; i < 300; i++)
		add(2, i, 1024);
	count = 0;
	for (int round = 0; round < 100; round++)
	{
		for (int i = 0; i < 100; i++)
			add(1, i, 512);
		MyDatabaseId = 1;
		count += !hloom_losses_are_many() && take(1, 0, 512, &dropped) == 100 && dropped == 0;
	}
	check(count == 100, "is not in the way of the others");
	check(show(2, 299, 1024) == 300, "and keeps what it has");
	check(take(2, 0, 1024, &dropped) == 300 && dropped == 0, "until it is reported");
	count = show(2, 299, 1024);
	check(count == 300, "it is shown afterwards");
	for (int i = 0; i < 700; i++)
		add(3, i, 512);
	check(take(3, 0, 512, &dropped) == 700 && show(2, 299, 1024) < 300,
		  "what was reported makes room for what was not");

	counted = 0;
	for (int i = 0; i < 10000; i++)
		add(1, i, 512);
	MyDatabaseId = 2;
	check(!hloom_losses_are_many(), "many of another database are not many of this one");
	{
		HloomLosses *losses = hloom_losses_take();

		check(losses != NULL && losses->count == 0 && losses->dropped > 0,
			  "that reports were dropped is told once, to whoever asks first");
		dropped = losses->dropped;
	}
	{
		int64		none;

		count = take(1, dropped, 512, &none);
		check(count > 500 && count + dropped == 10000 && none == 0,
			  "the oldest reports are dropped, and none unnoticed");
	}
	check(counted == 10000, "but no count");
	check(locked == 0, "the lock is free at the end");
	return failed ? 1 : 0;
}
