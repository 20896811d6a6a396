/*
 * statement.h
 *	  Where a statement of the client begins and ends.
 */
#ifndef HLOOM_STATEMENT_H
#define HLOOM_STATEMENT_H

extern void hloom_statement_init(void);

#endif							/* HLOOM_STATEMENT_H */
