/*
 * truncation.h
 *	  TRUNCATE of the lease table, and the leases that follow a session or a transaction.
 */
#ifndef HLOOM_TRUNCATION_H
#define HLOOM_TRUNCATION_H

extern void hloom_truncation_note(void);

#endif							/* HLOOM_TRUNCATION_H */
