/*
 * provider.c
 *	  The providers there are, by name.
 *
 * The composed lock reaches the store through here and through hloom_provider.h only.  The lease
 * table and shared memory are built in; others have put themselves into the list that
 * hloom_provider_register() keeps.  The list belongs to the process: a provider is known where its
 * library is loaded.
 */
#include "postgres.h"

#include "compat.h"
#include "provider.h"

static const HloomProvider *const built_in[] = {&hloom_provider_table, &hloom_provider_memory};

/*
 * Returns the first provider registered.
 */
static const HloomProvider *
first_registered(void)
{
	static HloomProvider **first = NULL;

	if (unlikely(first == NULL))
		first = (HloomProvider **) find_rendezvous_variable(HLOOM_PROVIDER_RENDEZVOUS);
	return *first;
}

/*
 * Returns the provider registered under the name, or found when there is none.  *foreign becomes
 * another abi that one has.
 */
static const HloomProvider *
find_besides(const HloomProvider *found, const char *name, uint32 *foreign)
{
	for (const HloomProvider *at = first_registered(); at != NULL; at = at->next)
	{
		/* Of another abi nothing can be read, not even the name. */
		if (at->abi != HLOOM_PROVIDER_ABI)
			*foreign = at->abi;
		else if (strcmp(at->name, name) == 0)
		{
			if (found != NULL)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_OBJECT),
						 errmsg("there are two lock providers named \"%s\"", name)));
			found = at;
		}
	}
	return found;
}

/*
 * Returns a built-in provider.  Raises 42710 for one registered under its name; looks through the
 * list only when it has got longer.
 */
static const HloomProvider *
checked_built_in(int which)
{
	static const HloomProvider *checked[lengthof(built_in)] = {0};
	const HloomProvider *first = first_registered();
	uint32		foreign;

	if (unlikely(first != checked[which]))
		(void) find_besides(built_in[which], built_in[which]->name, &foreign);
	checked[which] = first;
	return built_in[which];
}

static const HloomProvider *
find_registered(const char *name)
{
	uint32		foreign = HLOOM_PROVIDER_ABI;
	const HloomProvider *found = find_besides(NULL, name, &foreign);

	if (found == NULL && foreign != HLOOM_PROVIDER_ABI)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock provider \"%s\" does not exist", name),
				 errdetail("There is one for version %u of the provider interface instead of %u.",
						   foreign, HLOOM_PROVIDER_ABI),
				 errhint("Build it against the installed hloom_provider.h.")));
	return found;
}

/*
 * Returns the provider of the name, or NULL when there is none.  Raises 55000 and 42710 for
 * providers that cannot be told apart or were built for another interface.
 */
const HloomProvider *
hloom_provider_find(const char *name)
{
	for (int i = 0; i < lengthof(built_in); i++)
		if (strcmp(name, built_in[i]->name) == 0)
			return checked_built_in(i);
	return find_registered(name);
}

/*
 * The same, but raises 42704 when there is none.
 */
const HloomProvider *
hloom_provider_require(const char *name)
{
	const HloomProvider *provider = hloom_provider_find(name);

	if (unlikely(provider == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("lock provider \"%s\" does not exist", name),
				 errhint("See hloom_lock.provider and hloom_namespaces; a provider's library must"
						 " be in shared_preload_libraries.")));
	return provider;
}

/*
 * Returns the provider known to this process after another one, the first one after NULL, and NULL
 * at the end.  Those of another abi are left out: nothing of them can be read.
 */
const HloomProvider *
hloom_provider_next(const HloomProvider *after)
{
	const HloomProvider *next;

	if (after == NULL)
		return built_in[0];
	for (int i = 0; i + 1 < lengthof(built_in); i++)
		if (after == built_in[i])
			return built_in[i + 1];
	next = after->next;
	if (after == built_in[lengthof(built_in) - 1])
		next = first_registered();
	while (next != NULL && next->abi != HLOOM_PROVIDER_ABI)
		next = next->next;
	return next;
}
