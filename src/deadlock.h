/*
 * deadlock.h
 *	  Sessions that wait for each other, over leases and over PostgreSQL's own locks.
 */
#ifndef HLOOM_DEADLOCK_H
#define HLOOM_DEADLOCK_H

#include "errors.h"
#include "hloom.h"

extern void hloom_deadlock_check(const HloomProvider *provider, const HloomCourse *course,
								 HloomGrant *holder);

#endif							/* HLOOM_DEADLOCK_H */
