/*
 * hloom_lock.c
 *	  The module: magic block and start.
 *
 * _PG_init never raises.  A table whose access method cannot load would take VACUUM, monitoring
 * and DROP of the whole database down with it, so without shared_preload_libraries everything but
 * the lease calls works, and these say what to add.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "compat.h"
#include "guc.h"
#include "launcher.h"
#include "lease_ddl.h"
#include "shmem.h"
#include "statement.h"
#include "truncation.h"

HLOOM_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
	hloom_guc_init();
	hloom_ddl_init();
	if (process_shared_preload_libraries_in_progress)
	{
		hloom_shmem_init();
		hloom_statement_init();
		hloom_truncation_init();
		hloom_launcher_init();
	}
}
