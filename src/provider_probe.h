/*
 * provider_probe.h
 *	  What the lease table tells to those who look: its leases, and whether it answers.
 */
#ifndef HLOOM_PROVIDER_PROBE_H
#define HLOOM_PROVIDER_PROBE_H

#include "lease_page.h"
#include "tracked.h"

extern void hloom_probe_form_lease(HloomLease *lease, const HloomRow *row,
								   const HloomTrackedId *id);
extern bool hloom_probe_list(HloomVisit visit, void *arg);
extern bool hloom_probe_check(char *told, Size size);

#endif							/* HLOOM_PROVIDER_PROBE_H */
