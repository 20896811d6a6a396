/*
 * events.c
 *	  Log events: their names, numbers and levels, and the line of JSON each of them has.
 *
 * What is written begins with the name of the event, and its DETAIL is one line of JSON, for what
 * reads the log: event, id, namespace, key, and what applies.  A report is begun, gets its fields
 * and is written; one that nobody would see is not begun.  Whatever a text contains, the JSON is
 * valid: that is why nobody writes any of it by hand.
 *
 * The owner token is in no event.  This file knows no provider and no store.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "events.h"

typedef struct EventType
{
	const char *name;
	int			id;
	int			level;
	int			sqlstate;
} EventType;

/*
 * Up to 3108 these are the reference's; what it calls Information is LOG, which the server's log
 * gets and a client does not.
 */
static const EventType types[] = {
	[HLOOM_EVENT_DISABLED] = {
		"LockingDisabled", 3100, WARNING, ERRCODE_WARNING
	},
	[HLOOM_EVENT_MAX_WAIT] = {
		"LockDerivedMaxWait", 3101, LOG, ERRCODE_SUCCESSFUL_COMPLETION
	},
	[HLOOM_EVENT_LOST] = {
		"LockLeaseLost", 3102, WARNING, HLOOM_ERRCODE_LOST
	},
	[HLOOM_EVENT_THRESHOLD] = {
		"LockHoldThreshold", 3103, WARNING, ERRCODE_WARNING
	},
	[HLOOM_EVENT_RELEASE_FAILED] = {
		"LockReleaseFailed", 3104, WARNING, HLOOM_ERRCODE_TIMEOUT
	},
	[HLOOM_EVENT_EXTEND_FAILED] = {
		"LockExtendFailed", 3105, WARNING, HLOOM_ERRCODE_TIMEOUT
	},
	[HLOOM_EVENT_STOPPED] = {
		"LockAutoExtendStopped", 3106, LOG, ERRCODE_SUCCESSFUL_COMPLETION
	},
	[HLOOM_EVENT_CALLBACK_FAILED] = {
		"LockCancellationCallbackFailed", 3107, WARNING, ERRCODE_WARNING
	},
	[HLOOM_EVENT_ORPHAN] = {
		"LockOrphanRelease", 3108, DEBUG1, ERRCODE_SUCCESSFUL_COMPLETION
	},
	[HLOOM_EVENT_CHECK_FAILED] = {
		"LockCheckFailed", 3190, WARNING, HLOOM_ERRCODE_TIMEOUT
	},
	[HLOOM_EVENT_FORCE_RELEASE] = {
		"LockForceRelease", 3191, LOG, ERRCODE_SUCCESSFUL_COMPLETION
	}
};

/*
 * Begins an event, in the current memory context; namespace and key may be NULL.  Returns false
 * when neither client nor log would get it: then there is nothing to add and to write.
 */
bool
hloom_event_begin(HloomEvent *event, HloomEventKind kind, const char *ns, const char *key)
{
	const EventType *type = &types[kind];

	if (!message_level_is_interesting(type->level))
		return false;
	event->kind = kind;
	event->sqlstate = type->sqlstate;
	event->hint = NULL;
	initStringInfo(&event->detail);
	appendStringInfo(&event->detail, "{\"event\": \"%s\", \"id\": %d", type->name, type->id);
	if (ns != NULL)
		hloom_event_add(event, "namespace", ns);
	if (key != NULL)
		hloom_event_add(event, "key", key);
	return true;
}

/*
 * The same, of a lock.
 */
bool
hloom_event_begin_for(HloomEvent *event, HloomEventKind kind, const HloomKey *name)
{
	if (!message_level_is_interesting(types[kind].level))
		return false;
	return hloom_event_begin(event, kind, pnstrdup(name->ns, name->ns_len),
							 pnstrdup(name->key, name->key_len));
}

/*
 * Adds a field with a text of any content.
 */
void
hloom_event_add(HloomEvent *event, const char *field, const char *text)
{
	appendStringInfo(&event->detail, ", \"%s\": ", field);
	escape_json(&event->detail, text);
}

/*
 * Adds a field with a number.
 */
void
hloom_event_add_number(HloomEvent *event, const char *field, int64 number)
{
	appendStringInfo(&event->detail, ", \"%s\": " INT64_FORMAT, field, number);
}

/*
 * Adds a field with an array of numbers.
 */
void
hloom_event_add_numbers(HloomEvent *event, const char *field, const int64 *numbers, int count)
{
	appendStringInfo(&event->detail, ", \"%s\": [", field);
	for (int i = 0; i < count; i++)
		appendStringInfo(&event->detail, "%s" INT64_FORMAT, i == 0 ? "" : ", ", numbers[i]);
	appendStringInfoChar(&event->detail, ']');
}

/*
 * Adds a field with a time, as JSON has it.
 */
void
hloom_event_add_time(HloomEvent *event, const char *field, TimestampTz at)
{
	char		buf[MAXDATELEN + 1];

	JsonEncodeDateTime(buf, TimestampTzGetDatum(at), TIMESTAMPTZOID, NULL);
	hloom_event_add(event, field, buf);
}

/*
 * Adds how far a call had come.
 */
void
hloom_event_add_course(HloomEvent *event, const HloomCourse *course)
{
	hloom_event_add_number(event, "waited_ms", Max(course->waited, 0) / 1000);
	hloom_event_add_number(event, "attempts", course->attempts);
	if (course->cause)
		hloom_event_add(event, "cause", course->cause);
}

/*
 * Writes an event that was begun.  The message gets the event's name before it.
 */
void
hloom_event_write(HloomEvent *event, const char *format,...)
{
	const EventType *type = &types[event->kind];
	StringInfoData message;
	va_list		args;

	initStringInfo(&message);
	for (;;)
	{
		int			needed;

		va_start(args, format);
		needed = appendStringInfoVA(&message, format, args);
		va_end(args);
		if (needed == 0)
			break;
		enlargeStringInfo(&message, needed);
	}
	ereport(type->level,
			(errcode(event->sqlstate),
			 errmsg_internal("%s: %s", type->name, message.data),
			 errdetail_internal("%s}", event->detail.data),
			 event->hint ? errhint("%s", event->hint) : 0));
	pfree(message.data);
	pfree(event->detail.data);
}

/*
 * Reports that a provider did not answer a release, an extension or a check, so that it is not
 * known what became of the lease.
 */
void
hloom_event_unanswered(HloomEventKind kind, const HloomCourse *course)
{
	HloomEvent	event;

	if (!hloom_event_begin_for(&event, kind, course->name))
		return;
	hloom_event_add_course(&event, course);
	event.hint = "See hloom_health().";
	hloom_event_write(&event, "lock provider did not answer, %s",
					  kind == HLOOM_EVENT_RELEASE_FAILED ? "the lease may be held until its end" :
					  kind == HLOOM_EVENT_EXTEND_FAILED ? "the lease may end when it would have" :
					  "the lease may have been lost");
}

/*
 * Reports, once in a session, that nothing is locked.
 */
void
hloom_event_disabled(const HloomKey *name)
{
	static bool reported = false;
	const char *ns;
	HloomEvent	event;

	if (reported)
		return;
	reported = true;
	ns = pnstrdup(name->ns, name->ns_len);
	if (!hloom_event_begin(&event, HLOOM_EVENT_DISABLED, ns, NULL))
		return;
	event.hint = "Calls succeed without a lease, which is reported once in a session; see"
		" hloom_lock.enabled, and \"enabled\" in hloom_namespaces.";
	hloom_event_write(&event, "nothing is locked in namespace \"%s\"", ns);
}
