/*
 * work_table.h
 *	  Places of the shared table of work, for work.c and work_start.c only.
 */
#ifndef HLOOM_WORK_TABLE_H
#define HLOOM_WORK_TABLE_H

#include "storage/lwlock.h"
#include "storage/proc.h"

#include "work.h"

#define NEVER ((uint64) DT_NOEND)

typedef struct HloomWorkTable
{
	LWLock	   *lock;			/* constant */
	pg_atomic_uint32 launcher;	/* its process number + 1; 0: none */
	pg_atomic_uint32 shortage;	/* the server has no free background worker */
	HloomWork	places[HLOOM_WORK_PLACES];
} HloomWorkTable;

extern HloomWorkTable *hloom_work_table;

extern void hloom_work_clear(HloomWork *work);
extern void hloom_work_set_aside(HloomWork *work);

static inline uint32
hloom_work_own_number(void)
{
	return (uint32) (MyProc - ProcGlobal->allProcs) + 1;
}

#endif							/* HLOOM_WORK_TABLE_H */
