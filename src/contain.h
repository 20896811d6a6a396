/*
 * contain.h
 *	  Runs something whose error is not to end the statement.
 */
#ifndef HLOOM_CONTAIN_H
#define HLOOM_CONTAIN_H

extern ErrorData *hloom_contain(void (*run) (void *arg), void *arg);

#endif							/* HLOOM_CONTAIN_H */
