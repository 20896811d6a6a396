/*
 * guc.c
 *	  The settings hloom_lock.*, in alphabetical order.
 *
 * Defined whether the library is preloaded or not, so that a SET in a session that loads it late
 * behaves the same.
 */
#include "postgres.h"

#include <limits.h>

#include "utils/guc.h"

#include "guc.h"
#include "hloom.h"

/*
 * The lease of a call that names none.  Longer where work usually takes longer than this;
 * shorter where a crashed holder must not block the next one for long.
 */
int			hloom_default_lease = 30 * 1000;

/*
 * Longest key accepted.  Lower it to catch keys that grow by mistake (a serialized object).
 */
int			hloom_max_key_length = 512;

/*
 * No lease is longer, whatever a call asks for: the longest time a key stays blocked when its
 * holder dies.  Raise it only for work that cannot extend while it runs.
 */
int			hloom_max_lease = 5 * 60 * 1000;

/*
 * Defines the settings.  Called once, from _PG_init.
 */
void
hloom_guc_init(void)
{
	DefineCustomIntVariable("hloom_lock.default_lease",
							"Lease of a call that names none.",
							NULL,
							&hloom_default_lease,
							30 * 1000, 1, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomIntVariable("hloom_lock.max_key_length",
							"Longest lock key accepted, in characters.",
							NULL,
							&hloom_max_key_length,
							512, 1, HLOOM_MAX_KEY_CHARS,
							PGC_SUSET, 0,
							NULL, NULL, NULL);

	DefineCustomIntVariable("hloom_lock.max_lease",
							"Longest lease granted; a longer one is cut to this with a notice.",
							NULL,
							&hloom_max_lease,
							5 * 60 * 1000, 1, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS,
							NULL, NULL, NULL);

	MarkGUCPrefixReserved("hloom_lock");
}
