/*
 * activities.c
 *	  Unit test of the ring of activities: writers that are overtaken, and whole records.
 *
 * The server's part is played here.  GetUserId() is called in the middle of writing, so a test can
 * let others write meanwhile; and processes write to one ring while another one reads it.
 */
#include "postgres.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/pg_prng.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"

#include "activities.h"
#include "guc.h"

/* PostgreSQL's own printf would need its library. */
#undef printf
#undef snprintf

#define WRITERS 3
#define SECONDS 1

Oid			MyDatabaseId = 1;
int			MyProcPid = 1;
volatile sig_atomic_t InterruptPending = false;
int			hloom_activity_history = 0;
HloomSpan	hloom_client_span = {0};

static int	failed = 0;
static void (*meanwhile) (void) = NULL;

void
ProcessInterrupts(void)
{
}

Size
add_size(Size a, Size b)
{
	return a + b;
}

Size
mul_size(Size a, Size b)
{
	return a * b;
}

int
pg_mbcliplen(const char *mbstr, int len, int limit)
{
	return Min(len, limit);
}

Oid
GetUserId(void)
{
	void		(*run) (void) = meanwhile;

	meanwhile = NULL;
	if (run)
		run();
	return 1;
}

static void
check(bool good, const char *what)
{
	printf("%s - %s\n", good ? "ok" : "not ok", what);
	failed += !good;
}

static void
make_ring(int size)
{
	void	   *memory;

	hloom_activity_history = size;
	memory = mmap(NULL, hloom_activities_size() + 1, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		abort();
	hloom_activities_start(memory, false);
}

/*
 * Every part of what is written tells the number.
 */
static void
add(int64 number)
{
	char		key[HLOOM_MAX_KEY_BYTES];
	HloomKey	name = {.ns = "unit",.ns_len = 4,.key = key};
	HloomActivity activity = {
		.name = &name,
		.acquired = number % 2 ? HLOOM_ACQUIRED_YES : HLOOM_ACQUIRED_NO,
		.started_at = number,
		.duration = number,
		.waited = number,
		.held = number
	};

	name.key_len = 1 + number % 200;
	memset(key, 'a' + number % 26, name.key_len);
	hloom_client_span.trace_high = hloom_client_span.trace_low = hloom_client_span.id = number;
	hloom_activity_add(&activity);
}

static bool
is_whole(const HloomActivityRecord *record)
{
	int64		number = record->started_at;
	int			length = 1 + number % 200;

	for (int i = 0; i < record->key_len; i++)
		if (record->key[i] != 'a' + number % 26)
			return false;
	return record->key_len == Min(length, HLOOM_ACTIVITY_KEY) &&
		record->key_cut == (length > HLOOM_ACTIVITY_KEY) &&
		record->duration == number && record->waited == number && record->held == number &&
		record->acquired == (number % 2 ? HLOOM_ACQUIRED_YES : HLOOM_ACQUIRED_NO) &&
		record->span.trace_high == number && record->span.trace_low == number &&
		record->span.parent == number && record->span.id != 0 &&
		record->ns_len == 4 && memcmp(record->ns, "unit", 4) == 0;
}

/* What a look at the ring has seen. */
typedef struct Seen
{
	int			count;
	int			torn;
	char		numbers[200];	/* of the first ones, newest first */
} Seen;

static void
see(const HloomActivityRecord *record, void *arg)
{
	Seen	   *seen = (Seen *) arg;
	int			length = strlen(seen->numbers);

	seen->count++;
	seen->torn += !is_whole(record);
	snprintf(seen->numbers + length, sizeof(seen->numbers) - length, " %d",
			 (int) record->started_at);
}

static void
expect(const char *numbers, const char *what)
{
	Seen		seen = {0};

	hloom_activities_visit(see, &seen);
	check(strcmp(seen.numbers, numbers) == 0 && seen.torn == 0, what);
	if (strcmp(seen.numbers, numbers) != 0)
		printf("# got%s, expected%s\n", seen.numbers, numbers);
}

static void
look_meanwhile(void)
{
	expect(" 3 2", "what is being written is not seen, and what it overwrites is not, either");
}

static void
overtake_by_one(void)
{
	add(11);
}

static void
overtake_by_a_turn(void)
{
	for (int i = 21; i <= 24; i++)
		add(i);
}

static void
overtake_by_turns(void)
{
	for (int i = 31; i <= 40; i++)
		add(i);
}

static void
check_overtaken(void)
{
	make_ring(3);
	expect("", "a new ring is empty");
	for (int i = 1; i <= 3; i++)
		add(i);
	expect(" 3 2 1", "the newest first");
	meanwhile = look_meanwhile;
	add(4);
	expect(" 4 3 2", "then it is there");
	meanwhile = overtake_by_one;
	add(10);
	expect(" 11 10 4", "in the order in which they began to be written");
	meanwhile = overtake_by_a_turn;
	add(20);
	/* 23 found the slot of 20, which was written still. */
	expect(" 24 20 22", "what finds its slot in use is dropped");
	meanwhile = overtake_by_turns;
	add(30);
	expect(" 40 30 38", "however often");
	add(50);
	add(51);
	add(52);
	expect(" 52 51 50", "and the slot is as good as before");

	MyDatabaseId = 2;
	add(60);
	expect(" 60", "another database");
	MyDatabaseId = 1;
	expect(" 52 51", "sees its own only");

	make_ring(1);
	meanwhile = overtake_by_a_turn;
	add(70);
	expect(" 70", "a ring of one");
	make_ring(0);
	check(hloom_activity_ring == NULL && hloom_activities_size() == 0, "and none");
	expect("", "which is empty");
}

static void
check_frames(void)
{
	HloomActivityFrame outer;
	HloomActivityFrame inner;
	HloomKey	name = {.ns = "unit",.ns_len = 4,.key = "k",.key_len = 1};
	HloomActivity activity = {.name = &name};
	HloomSpan	client = {.trace_high = 7,.trace_low = 8,.id = 9,.sampled = HLOOM_SAMPLED_YES};

	make_ring(3);
	hloom_client_span = client;
	hloom_activity_enter(&outer);
	hloom_activity_enter(&inner);
	check(outer.span.parent == 9 && outer.span.trace_high == 7 && outer.span.trace_low == 8,
		  "the outer one is part of the client's");
	check(inner.span.parent == outer.span.id && inner.span.trace_low == 8 &&
		  inner.span.sampled == HLOOM_SAMPLED_YES, "the inner one of the outer");
	hloom_activity_leave(&inner, &activity);
	hloom_activity_leave(&outer, &activity);
	memset(&hloom_client_span, 0, sizeof(hloom_client_span));
	hloom_activity_enter(&outer);
	check(outer.span.parent == 0 && outer.span.trace_low != 8, "left, they have no part in others");
	hloom_activity_leave(&outer, &activity);
}

static void
write_for_ever(int writer)
{
	pg_prng_seed(&pg_global_prng_state, writer + 1);
	for (int64 number = 1;; number++)
		add(number * WRITERS + writer);
}

static void
check_whole(int size)
{
	pid_t		writers[WRITERS];
	time_t		end = time(NULL) + SECONDS;
	Seen		all = {0};
	char		what[100];

	make_ring(size);
	for (int i = 0; i < WRITERS; i++)
	{
		writers[i] = fork();
		if (writers[i] < 0)
			abort();
		if (writers[i] == 0)
			write_for_ever(i);
	}
	while (time(NULL) <= end || all.count == 0)
	{
		Seen		seen = {0};

		hloom_activities_visit(see, &seen);
		all.count += seen.count;
		all.torn += seen.torn;
	}
	for (int i = 0; i < WRITERS; i++)
	{
		kill(writers[i], SIGKILL);
		waitpid(writers[i], NULL, 0);
	}
	snprintf(what, sizeof(what), "each record is whole, with %d in the ring", size);
	check(all.torn == 0, what);
	printf("# %d records seen, %d torn\n", all.count, all.torn);
}

int
main(void)
{
	pg_prng_seed(&pg_global_prng_state, 1);
	setvbuf(stdout, NULL, _IOLBF, 0);
	check_overtaken();
	check_frames();
	check_whole(1);
	check_whole(5);
	return failed != 0;
}
