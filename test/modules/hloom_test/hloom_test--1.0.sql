\echo Use "CREATE EXTENSION hloom_test" to load this file. \quit

CREATE FUNCTION hloom_test_set(point text, action text) RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'hloom_test_set';

COMMENT ON FUNCTION hloom_test_set(text, text) IS
'what happens at a point (flush, granted, split, grow) in this session: nothing, skip (the point answers true), error, crash, stop (until SIGCONT)';

CREATE FUNCTION hloom_test_hits(point text) RETURNS bigint
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'hloom_test_hits';

COMMENT ON FUNCTION hloom_test_hits(text) IS
'how often this session passed the point';

CREATE FUNCTION hloom_test_hold(provider_key text, lease interval DEFAULT '1 hour') RETURNS boolean
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'hloom_test_hold';

COMMENT ON FUNCTION hloom_test_hold(text, interval) IS
'lock provider "test": somebody else takes "{namespace}:lock:{key}"; false if it is taken';

CREATE FUNCTION hloom_test_free(provider_key text) RETURNS boolean
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'hloom_test_free';

COMMENT ON FUNCTION hloom_test_free(text) IS
'lock provider "test": whoever holds the key does no more; whether somebody did';

CREATE FUNCTION hloom_test_held() RETURNS bigint
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'hloom_test_held';

COMMENT ON FUNCTION hloom_test_held() IS
'lock provider "test": leases held now';

CREATE FUNCTION hloom_test_fail(kind text, calls integer DEFAULT 1, applies boolean DEFAULT false, acquire_only boolean DEFAULT false) RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'hloom_test_fail';

COMMENT ON FUNCTION hloom_test_fail(text, integer, boolean, boolean) IS
'lock provider "test": the next calls fail (none heals): unavailable, timeout, other, foreign are raised, reply-unavailable, reply-timeout, reply-other returned, store raised by count, list and check alone; applies: after they took effect';

CREATE FUNCTION hloom_test_delay(delay interval, operations text DEFAULT 'acquire extend', deaf boolean DEFAULT false) RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'hloom_test_delay';

COMMENT ON FUNCTION hloom_test_delay(interval, text, boolean) IS
'lock provider "test": such calls (acquire, release, extend, is_held, holder, force_release, commit_begin, count, list, check) answer so much later, without a look at their deadline; deaf: nor at interrupts';

CREATE FUNCTION hloom_test_calls(OUT operation text, OUT key text, OUT owner uuid, OUT result text, OUT bound interval) RETURNS SETOF record
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'hloom_test_calls';

COMMENT ON FUNCTION hloom_test_calls() IS
'lock provider "test": calls in the order of their completion since the last look';

CREATE FUNCTION hloom_test_register(which text) RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'hloom_test_register';

COMMENT ON FUNCTION hloom_test_register(text) IS
'puts a provider of another interface version (foreign), a second one named "test" (second) or one named as the built-in one (table) into the list';

CREATE FUNCTION hloom_test_count(namespace text, stat integer, amount bigint) RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'hloom_test_count';

COMMENT ON FUNCTION hloom_test_count(text, integer, bigint) IS
'adds to a counter of a namespace, as the lock would';

CREATE FUNCTION hloom_test_time(namespace text, timing integer, usec bigint) RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'hloom_test_time';

COMMENT ON FUNCTION hloom_test_time(text, integer, bigint) IS
'counts a duration of a namespace, as the lock would';
