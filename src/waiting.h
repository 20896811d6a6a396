/*
 * waiting.h
 *	  One backend's wait for a key, until something happens.
 */
#ifndef HLOOM_WAITING_H
#define HLOOM_WAITING_H

#include "attempts.h"
#include "hloom.h"

/* A wait between attempts, and those after it for the same key. */
typedef struct HloomWait
{
	const HloomProvider *provider;
	const HloomKey *name;
	int64		began;			/* as hloom_waiting_clock() tells; of the acquisition */
	int64		lock_timeout;	/* microseconds after that; 0: none */
	int64		attempts;		/* made so far */
	int64		check_at;		/* next search for a deadlock; 0: none was due yet */
	bool		logged;			/* the log was told that it lasts long */
} HloomWait;

extern int64 hloom_waiting_clock(void);
extern HloomSlept hloom_waiting_sleep(HloomWait *wait, int64 usec);
extern void hloom_waiting_granted(const HloomWait *wait);

#endif							/* HLOOM_WAITING_H */
