/*
 * events.h
 *	  Log events: their names, numbers and levels, and the line of JSON each of them has.
 */
#ifndef HLOOM_EVENTS_H
#define HLOOM_EVENTS_H

#include "datatype/timestamp.h"
#include "errors.h"
#include "lib/stringinfo.h"

/* In the order of their numbers. */
typedef enum HloomEventKind
{
	HLOOM_EVENT_DISABLED,
	HLOOM_EVENT_MAX_WAIT,
	HLOOM_EVENT_LOST,
	HLOOM_EVENT_THRESHOLD,
	HLOOM_EVENT_RELEASE_FAILED,
	HLOOM_EVENT_EXTEND_FAILED,
	HLOOM_EVENT_STOPPED,
	HLOOM_EVENT_CALLBACK_FAILED,
	HLOOM_EVENT_ORPHAN,
	HLOOM_EVENT_CHECK_FAILED,
	HLOOM_EVENT_FORCE_RELEASE
} HloomEventKind;

/* An event on its way.  sqlstate and hint may be changed until it is written. */
typedef struct HloomEvent
{
	HloomEventKind kind;
	int			sqlstate;		/* begins as is usual for the kind */
	const char *hint;			/* or NULL, as it begins */
	StringInfoData detail;		/* the JSON so far */
} HloomEvent;

extern bool hloom_event_begin(HloomEvent *event, HloomEventKind kind, const char *ns,
							  const char *key);
extern bool hloom_event_begin_for(HloomEvent *event, HloomEventKind kind, const HloomKey *name);
extern void hloom_event_add(HloomEvent *event, const char *field, const char *text);
extern void hloom_event_add_number(HloomEvent *event, const char *field, int64 number);
extern void hloom_event_add_numbers(HloomEvent *event, const char *field,
									const int64 *numbers, int count);
extern void hloom_event_add_time(HloomEvent *event, const char *field, TimestampTz at);
extern void hloom_event_add_course(HloomEvent *event, const HloomCourse *course);
extern void hloom_event_write(HloomEvent *event, const char *format,...) pg_attribute_printf(2, 3);
extern void hloom_event_unanswered(HloomEventKind kind, const HloomCourse *course);
extern void hloom_event_disabled(const HloomKey *name);

#endif							/* HLOOM_EVENTS_H */
