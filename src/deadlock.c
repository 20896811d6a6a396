/*
 * deadlock.c
 *	  Sessions that wait for each other, over leases and over PostgreSQL's own locks.
 */
#include "postgres.h"

#include "deadlock.h"

/*
 * Looks for a deadlock of this backend, which waits for a key.  Raises 40P01.
 */
void
hloom_deadlock_check(const HloomProvider *provider, const HloomKey *name, int64 waited)
{
}
