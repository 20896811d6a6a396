/*
 * lease_key.h
 *	  What a valid namespace, key and note are, and the hash of a key.
 */
#ifndef HLOOM_LEASE_KEY_H
#define HLOOM_LEASE_KEY_H

#include "common/hashfn.h"
#include "hloom.h"

extern bool hloom_key_is_namespace(const char *s, int len);
extern void hloom_key_check_namespace(const char *s, int len, bool with_key);
extern void hloom_key_check(HloomKey *name, const text *key, int longest);
extern HloomKey hloom_key_copy(const HloomKey *name, MemoryContext context);
extern void hloom_key_check_note(const text *note);

/*
 * Returns the hash of a lock's name.  The namespace's own hash seeds the key's: no copy of the
 * provider key is made.
 */
static inline uint64
hloom_key_hash(const char *ns, int ns_len, const char *key, int key_len)
{
	return hash_bytes_extended((const unsigned char *) key, key_len,
							   hash_bytes_extended((const unsigned char *) ns, ns_len, 0));
}

#endif							/* HLOOM_LEASE_KEY_H */
