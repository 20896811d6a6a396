/*
 * nesting.h
 *	  The keys locked by the calls of hloom_execute_with_lock that are running.
 */
#ifndef HLOOM_NESTING_H
#define HLOOM_NESTING_H

#include "hloom.h"

/* One running call; lives on its stack. */
typedef struct HloomNesting
{
	const HloomKey *name;
	struct HloomNesting *outer;
} HloomNesting;

extern void hloom_nesting_enter(HloomNesting *frame, const HloomKey *name);
extern void hloom_nesting_leave(const HloomNesting *frame);
extern bool hloom_nesting_holds(const HloomKey *name);

#endif							/* HLOOM_NESTING_H */
