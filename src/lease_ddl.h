/*
 * lease_ddl.h
 *	  DDL that would break the lease table, refused.
 */
#ifndef HLOOM_LEASE_DDL_H
#define HLOOM_LEASE_DDL_H

extern void hloom_ddl_init(void);

#endif							/* HLOOM_LEASE_DDL_H */
