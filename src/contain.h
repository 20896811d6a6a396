/*
 * contain.h
 *	  Runs something whose error is not to end the statement, or that has a deadline.
 */
#ifndef HLOOM_CONTAIN_H
#define HLOOM_CONTAIN_H

#include "datatype/timestamp.h"

extern ErrorData *hloom_contain(void (*run) (void *arg), void *arg);
extern ErrorData *hloom_contain_until(void (*run) (void *arg), void *arg, TimestampTz deadline,
									  bool *expired);
extern ErrorData *hloom_contain_bounded(void (*run) (void *arg), void *arg, TimestampTz deadline,
										bool *expired);

#endif							/* HLOOM_CONTAIN_H */
