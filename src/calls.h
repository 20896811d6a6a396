/*
 * calls.h
 *	  Calls of a provider, contained where it may raise, and the clean-up after an attempt.
 */
#ifndef HLOOM_CALLS_H
#define HLOOM_CALLS_H

#include "hloom.h"

extern HloomReply hloom_calls_reply_of(const ErrorData *error);
extern HloomReply hloom_calls_try_acquire(const HloomProvider *provider, const HloomCall *call,
										  HloomGrant *grant, const char **cause);
extern HloomReply hloom_calls_release(const HloomProvider *provider, const HloomCall *call,
									  const char **cause);
extern HloomReply hloom_calls_extend(const HloomProvider *provider, const HloomCall *call,
									 HloomGrant *grant, const char **cause);
extern HloomReply hloom_calls_is_held(const HloomProvider *provider, const HloomCall *call,
									  HloomGrant *grant, const char **cause);
extern HloomReply hloom_calls_holder(const HloomProvider *provider, const HloomCall *call,
									 HloomGrant *grant, const char **cause);
extern HloomReply hloom_calls_force_release(const HloomProvider *provider, const HloomCall *call,
											HloomGrant *grant, const char **cause);
extern HloomReply hloom_calls_commit_begin(const HloomProvider *provider, const HloomCall *call,
										   int64 fence, HloomGrant *grant, const char **cause);
extern bool hloom_calls_clean_up(const HloomProvider *provider, const HloomCall *call);

#endif							/* HLOOM_CALLS_H */
