/*
 * provider.h
 *	  Which provider keeps the leases of a namespace.
 */
#ifndef HLOOM_PROVIDER_LIST_H
#define HLOOM_PROVIDER_LIST_H

#include "hloom_provider.h"

extern const HloomProvider hloom_provider_table;

extern const HloomProvider *hloom_provider_of(const HloomKey *name);

#endif							/* HLOOM_PROVIDER_LIST_H */
