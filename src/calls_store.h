/*
 * calls_store.h
 *	  Calls of a provider about all its leases: how many, which, and whether it answers.
 */
#ifndef HLOOM_CALLS_STORE_H
#define HLOOM_CALLS_STORE_H

#include "hloom.h"

extern int64 hloom_calls_count(const HloomProvider *provider, const char *ns, uint16 ns_len);
extern void hloom_calls_list(const HloomProvider *provider, HloomVisit visit, void *arg);
extern bool hloom_calls_check(const HloomProvider *provider, char *told, Size size);

#endif							/* HLOOM_CALLS_STORE_H */
