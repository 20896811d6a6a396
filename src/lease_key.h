/*
 * lease_key.h
 *	  What a valid namespace, key and note are, and the hash of a key.
 */
#ifndef HLOOM_LEASE_KEY_H
#define HLOOM_LEASE_KEY_H

#include "hloom.h"

extern void hloom_key_check(HloomKey *name, const text *ns, const text *key);
extern void hloom_key_check_note(const text *note);

#endif							/* HLOOM_LEASE_KEY_H */
