/*
 * lease_am.h
 *	  The table access method hloom_lease, and what the lease table refuses.
 */
#ifndef HLOOM_LEASE_AM_H
#define HLOOM_LEASE_AM_H

#include "access/tableam.h"

extern void hloom_am_refuse(Relation rel, const char *operation) pg_attribute_noreturn();

#endif							/* HLOOM_LEASE_AM_H */
