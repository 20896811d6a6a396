/*
 * durable.h
 *	  When a change of the lease table is durable, and what COMMIT still has to do for it.
 */
#ifndef HLOOM_DURABLE_H
#define HLOOM_DURABLE_H

#include "access/xlogdefs.h"
#include "hloom.h"

extern XLogRecPtr hloom_durable_begin(void);
extern void hloom_durable_forget(XLogRecPtr saved, TimestampTz now);
extern bool hloom_durable_wait(XLogRecPtr lsn, XLogRecPtr saved, TimestampTz now,
							   TimestampTz deadline);
extern bool hloom_durable_test_point(HloomTestPoint point);

#endif							/* HLOOM_DURABLE_H */
