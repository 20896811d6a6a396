/*
 * options.h
 *	  What applies to the calls on a namespace: its row of hloom_namespaces over the settings.
 */
#ifndef HLOOM_OPTIONS_H
#define HLOOM_OPTIONS_H

#include "hloom.h"
#include "retry.h"

/* Options in the order of the columns of hloom_namespaces, which begin with the namespace. */
typedef enum HloomOption
{
	HLOOM_OPTION_ENABLED,
	HLOOM_OPTION_PROVIDER,
	HLOOM_OPTION_DEFAULT_LEASE,
	HLOOM_OPTION_MAX_LEASE,
	HLOOM_OPTION_MAX_HOLD,
	HLOOM_OPTION_RETRY,
	HLOOM_OPTION_AUTO_EXTEND,
	HLOOM_OPTION_DETECT_REENTRANCY,
	HLOOM_OPTION_MAX_KEY_LENGTH,
	HLOOM_OPTION_ROLE
} HloomOption;

#define HLOOM_OPTIONS (HLOOM_OPTION_ROLE + 1)

/* In in_row: the namespace has a row, whatever is in it. */
#define HLOOM_OPTION_ANY HLOOM_OPTIONS

/* Durations in microseconds.  Valid until the next call of hloom_options_of(). */
typedef struct HloomOptions
{
	uint32		in_row;			/* bit 1 << option: decided by the row, not by a setting */
	bool		enabled;
	bool		auto_extend;
	bool		detect_reentrancy;
	int			max_key_length; /* characters */
	int64		default_lease;
	int64		max_lease;
	int64		max_hold;
	HloomRetry	retry;
	const char *provider;		/* name */
	const char *role;			/* NULL: any role may use the namespace */
} HloomOptions;

extern void hloom_options_of(HloomOptions *options, const char *ns, int ns_len);
extern void hloom_options_check_role(const HloomOptions *options, const char *ns, int ns_len);
extern bool hloom_options_are_stale(void);
extern const char *hloom_options_provider(const char *ns, int ns_len);
extern void hloom_options_visit(void (*visit) (const char *ns, void *arg), void *arg);
extern bool hloom_options_enabled(const char *ns, int ns_len);
extern bool hloom_options_may_use(const char *ns, int ns_len);

#endif							/* HLOOM_OPTIONS_H */
