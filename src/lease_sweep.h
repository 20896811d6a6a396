/*
 * lease_sweep.h
 *	  Removes the rows of leases that were given back.
 */
#ifndef HLOOM_LEASE_SWEEP_H
#define HLOOM_LEASE_SWEEP_H

#include "tracked.h"

extern int	hloom_sweep(HloomTrackedId *ids, int count);
extern int	hloom_sweep_all(void);
extern void hloom_sweep_reserve(int more);
extern void hloom_sweep_later(const HloomTrackedId *id);
extern void hloom_sweep_some(void);

#endif							/* HLOOM_LEASE_SWEEP_H */
