/*
 * errors.h
 *	  The SQLSTATEs of our own and the few errors that several layers raise.
 */
#ifndef HLOOM_ERRORS_H
#define HLOOM_ERRORS_H

#include "hloom.h"

/* Class LL is in the range the SQL standard leaves to implementations. */
#define HLOOM_ERRCODE_REENTRANCY MAKE_SQLSTATE('L', 'L', '0', '0', '1')
#define HLOOM_ERRCODE_UNAVAILABLE MAKE_SQLSTATE('L', 'L', '0', '0', '2')
#define HLOOM_ERRCODE_TIMEOUT MAKE_SQLSTATE('L', 'L', '0', '0', '3')
#define HLOOM_ERRCODE_PROVIDER MAKE_SQLSTATE('L', 'L', '0', '0', '4')
#define HLOOM_ERRCODE_LOST MAKE_SQLSTATE('L', 'L', '0', '1', '0')

extern char *hloom_error_detail(const HloomCall *call, int attempts);
pg_noreturn extern void hloom_error_reply(HloomReply reply, const HloomCall *call);
pg_noreturn extern void hloom_error_not_built(const char *what);

#endif							/* HLOOM_ERRORS_H */
