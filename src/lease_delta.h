/*
 * lease_delta.h
 *	  Small changes of pages, logged as what they are.
 */
#ifndef HLOOM_LEASE_DELTA_H
#define HLOOM_LEASE_DELTA_H

#include "access/xlogdefs.h"
#include "lease_page.h"
#include "storage/buf.h"

#define HLOOM_DELTA_BUFFERS 2

/* A whole row, three fields beside it, and what parts cost. */
#define HLOOM_DELTA_SIZE (HLOOM_MAX_ROW + 3 * sizeof(int64) + 4 * 2 * sizeof(uint16))

/* Set buffers to 0 to begin; the rest need not be cleared. */
typedef struct HloomDelta
{
	int			buffers;
	Buffer		buffer[HLOOM_DELTA_BUFFERS];
	int			length[HLOOM_DELTA_BUFFERS];
	char		parts[HLOOM_DELTA_BUFFERS][HLOOM_DELTA_SIZE];
} HloomDelta;

extern void hloom_delta_set(HloomDelta *delta, Buffer buf, void *at, const void *data, Size size);
extern XLogRecPtr hloom_delta_finish(Relation rel, HloomDelta *delta);

#endif							/* HLOOM_LEASE_DELTA_H */
