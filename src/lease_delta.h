/*
 * lease_delta.h
 *	  Small changes of pages, logged as what they are.
 */
#ifndef HLOOM_LEASE_DELTA_H
#define HLOOM_LEASE_DELTA_H

#include "access/xlogdefs.h"
#include "storage/buf.h"
#include "utils/rel.h"

#define HLOOM_DELTA_BUFFERS 2
#define HLOOM_DELTA_PARTS 6

typedef struct HloomDeltaPart
{
	int			buffer;			/* index into buffers */
	char	   *at;				/* in the page */
	const char *data;
	uint16		head[2];		/* offset and length, as logged */
} HloomDeltaPart;

typedef struct HloomDelta
{
	int			buffers;
	int			parts;
	Buffer		buffer[HLOOM_DELTA_BUFFERS];
	HloomDeltaPart part[HLOOM_DELTA_PARTS];
} HloomDelta;

extern void hloom_delta_set(HloomDelta *delta, Buffer buf, void *at, const void *data, Size size);
extern XLogRecPtr hloom_delta_finish(Relation rel, HloomDelta *delta);

#endif							/* HLOOM_LEASE_DELTA_H */
