/*
 * truncation.h
 *	  TRUNCATE and DROP of the lease table, and who depends on its leases.
 */
#ifndef HLOOM_TRUNCATION_H
#define HLOOM_TRUNCATION_H

extern void hloom_truncation_note(void);
extern void hloom_truncation_init(void);

#endif							/* HLOOM_TRUNCATION_H */
