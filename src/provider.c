/*
 * provider.c
 *	  Which provider keeps the leases of a namespace.
 *
 * The composed lock reaches the store through here and through hloom_provider.h only.  There is
 * one provider yet, the lease table.
 */
#include "postgres.h"

#include "provider.h"

/*
 * Returns the provider of a checked name.
 */
const HloomProvider *
hloom_provider_of(const HloomKey *name)
{
	return &hloom_provider_table;
}
