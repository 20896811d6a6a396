/*
 * lease_am.h
 *	  The table access method hloom_lease, and what the lease table refuses.
 */
#ifndef HLOOM_LEASE_AM_H
#define HLOOM_LEASE_AM_H

#include "access/tableam.h"
#include "hloom.h"

pg_noreturn extern void hloom_am_refuse(Relation rel, const char *operation);

#endif							/* HLOOM_LEASE_AM_H */
