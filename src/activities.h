/*
 * activities.h
 *	  Activities: what acquisitions and locked actions were like, one by one, for whoever traces.
 */
#ifndef HLOOM_ACTIVITIES_H
#define HLOOM_ACTIVITIES_H

#include "datatype/timestamp.h"
#include "hloom.h"
#include "trace.h"

/* Bytes kept of a key. */
#define HLOOM_ACTIVITY_KEY 160

typedef enum HloomActivityKind
{
	HLOOM_ACTIVITY_ACQUIRE,
	HLOOM_ACTIVITY_EXECUTE
} HloomActivityKind;

typedef enum HloomAcquired
{
	HLOOM_ACQUIRED_UNTOLD,
	HLOOM_ACQUIRED_NO,
	HLOOM_ACQUIRED_YES
} HloomAcquired;

/* An activity, as its maker tells it. */
typedef struct HloomActivity
{
	HloomActivityKind kind;
	HloomAcquired acquired;
	const HloomKey *name;
	TimestampTz started_at;
	int64		duration;		/* microseconds, as all */
	int64		waited;			/* HLOOM_NOT_TOLD where that is so */
	int64		held;			/* the same */
} HloomActivity;

#define HLOOM_NOT_TOLD (-1)

/* One that others are part of; lives on the stack of what it is about. */
typedef struct HloomActivityFrame
{
	HloomSpan	span;
	const struct HloomActivityFrame *outer;
} HloomActivityFrame;

/* One that is over. */
typedef struct HloomActivityRecord
{
	HloomSpan	span;
	TimestampTz started_at;
	int64		duration;
	int64		waited;			/* or HLOOM_NOT_TOLD */
	int64		held;			/* the same */
	Oid			database;
	Oid			role;
	int			pid;
	uint8		kind;			/* HloomActivityKind */
	uint8		acquired;		/* HloomAcquired */
	uint8		ns_len;
	uint8		key_len;
	bool		key_cut;		/* the key is longer */
	char		ns[HLOOM_MAX_NAMESPACE];
	char		key[HLOOM_ACTIVITY_KEY];
} HloomActivityRecord;

struct HloomActivityRing;

/* NULL: activities are not kept, and not worth being begun. */
extern struct HloomActivityRing *hloom_activity_ring;

typedef void (*HloomActivityVisit) (const HloomActivityRecord *record, void *arg);

extern Size hloom_activities_size(void);
extern void hloom_activities_start(void *memory, bool found);
extern void hloom_activity_enter(HloomActivityFrame *frame);
extern void hloom_activity_leave(const HloomActivityFrame *frame, const HloomActivity *activity);
extern void hloom_activity_add(const HloomActivity *activity);
extern void hloom_activities_visit(HloomActivityVisit visit, void *arg);

#endif							/* HLOOM_ACTIVITIES_H */
