/*
 * guc.h
 *	  The settings hloom_lock.*.
 */
#ifndef HLOOM_GUC_H
#define HLOOM_GUC_H

extern int	hloom_default_lease;	/* milliseconds */
extern int	hloom_max_key_length;	/* characters */
extern int	hloom_max_lease;	/* milliseconds */

extern void hloom_guc_init(void);

#endif							/* HLOOM_GUC_H */
