/*
 * work.h
 *	  Asks the worker of this database to look.
 */
#ifndef HLOOM_WORK_H
#define HLOOM_WORK_H

#include "datatype/timestamp.h"

/*
 * Has the worker of this database look no later than this.  Does not raise.
 */
static inline void
hloom_work_ask(TimestampTz due)
{
}

#endif							/* HLOOM_WORK_H */
