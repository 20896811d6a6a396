/*
 * provider.h
 *	  The providers there are, by name.
 */
#ifndef HLOOM_PROVIDER_LIST_H
#define HLOOM_PROVIDER_LIST_H

#include "hloom_provider.h"

extern const HloomProvider hloom_provider_table;

extern const HloomProvider *hloom_provider_find(const char *name);
extern const HloomProvider *hloom_provider_require(const char *name);
extern const HloomProvider *hloom_provider_next(const HloomProvider *after);

#endif							/* HLOOM_PROVIDER_LIST_H */
