/* hloom_lock 0.1.0 */

\echo Use "CREATE EXTENSION hloom_lock" to load this file. \quit

-- The table of leases ------------------------------------------------------------------------

CREATE FUNCTION hloom_lease_handler(internal) RETURNS table_am_handler
LANGUAGE C VOLATILE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_lease_handler';

COMMENT ON FUNCTION hloom_lease_handler(internal) IS
'handler of access method hloom_lease';

CREATE ACCESS METHOD hloom_lease TYPE TABLE HANDLER hloom_lease_handler;

COMMENT ON ACCESS METHOD hloom_lease IS
'keeps table hloom_leases: changed in place and logged, outside of transactions';

CREATE TABLE hloom_leases (
	namespace pg_catalog.text NOT NULL,
	key pg_catalog.text NOT NULL,
	owner pg_catalog.uuid,
	owner_tag pg_catalog.text NOT NULL,
	fence pg_catalog.int8 NOT NULL,
	mode pg_catalog.text NOT NULL,
	granted_at pg_catalog.timestamptz NOT NULL,
	expires_at pg_catalog.timestamptz NOT NULL,
	lease pg_catalog.interval NOT NULL,
	holder_role pg_catalog.regrole NOT NULL,
	holder_pid pg_catalog.int4 NOT NULL,
	application_name pg_catalog.text NOT NULL,
	client_addr pg_catalog.inet,
	scope pg_catalog.text NOT NULL,
	auto_extend pg_catalog.bool NOT NULL,
	note pg_catalog.text
) USING hloom_lease;

COMMENT ON TABLE hloom_leases IS
'leases held now: the current state, not a snapshot; changed by hloom_try_acquire(), hloom_extend() and hloom_release() only';
COMMENT ON COLUMN hloom_leases.namespace IS 'namespace of the key';
COMMENT ON COLUMN hloom_leases.key IS 'what is locked, within its namespace';
COMMENT ON COLUMN hloom_leases.owner IS 'secret owner token; NULL unless you took the lease, own this table or are a superuser';
COMMENT ON COLUMN hloom_leases.owner_tag IS 'first 8 hex digits of the SHA-256 of the owner token''s text';
COMMENT ON COLUMN hloom_leases.fence IS 'fencing token: grows with every grant of the key';
COMMENT ON COLUMN hloom_leases.mode IS 'exclusive';
COMMENT ON COLUMN hloom_leases.granted_at IS 'when the lease was granted, by the server''s clock';
COMMENT ON COLUMN hloom_leases.expires_at IS 'when the lease ends unless it is extended';
COMMENT ON COLUMN hloom_leases.lease IS 'duration last granted';
COMMENT ON COLUMN hloom_leases.holder_role IS 'role that took the lease';
COMMENT ON COLUMN hloom_leases.holder_pid IS 'server process that took the lease; it may be gone';
COMMENT ON COLUMN hloom_leases.application_name IS 'application_name of the session that took the lease';
COMMENT ON COLUMN hloom_leases.client_addr IS 'address of the client that took the lease; NULL on a unix socket';
COMMENT ON COLUMN hloom_leases.scope IS 'lease: lives until released or expired, whatever happens to the session';
COMMENT ON COLUMN hloom_leases.auto_extend IS 'whether the server renews the lease';
COMMENT ON COLUMN hloom_leases.note IS 'free text of the call that took the lease';

-- Owners are masked row by row, so whoever may watch the server may read the table.
GRANT SELECT ON hloom_leases TO pg_monitor;

-- Types --------------------------------------------------------------------------------------

CREATE TYPE hloom_handle AS (
	namespace pg_catalog.text,
	key pg_catalog.text,
	owner pg_catalog.uuid,
	fence pg_catalog.int8,
	lease pg_catalog.interval,
	lease_end pg_catalog.timestamptz,
	is_coordinated pg_catalog.bool
);

COMMENT ON TYPE hloom_handle IS
'a lease as its owner knows it; no field is NULL';

CREATE TYPE hloom_retry_policy AS (
	kind pg_catalog.text,
	retries pg_catalog.int4,
	delay pg_catalog.interval,
	max_delay pg_catalog.interval,
	factor pg_catalog.float8,
	jitter pg_catalog.interval
);

COMMENT ON TYPE hloom_retry_policy IS
'how often and after which delays a busy key is tried again; made by hloom_retry_immediate(), hloom_retry_interval(), hloom_retry_linear(), hloom_retry_exponential()';
COMMENT ON COLUMN hloom_retry_policy.kind IS 'immediate, interval, linear or exponential';
COMMENT ON COLUMN hloom_retry_policy.retries IS 'attempts after the first one, 0 to 1000000';
COMMENT ON COLUMN hloom_retry_policy.delay IS 'interval: the delay; linear: retry n comes after n times this; exponential: the first delay; immediate: none';
COMMENT ON COLUMN hloom_retry_policy.max_delay IS 'exponential: the longest delay; otherwise none';
COMMENT ON COLUMN hloom_retry_policy.factor IS 'exponential: each delay is this many times the one before, default 2; otherwise none';
COMMENT ON COLUMN hloom_retry_policy.jitter IS 'each delay grows by a random share of this; default none';

-- Namespaces ---------------------------------------------------------------------------------

CREATE TABLE hloom_namespaces (
	namespace pg_catalog.text COLLATE pg_catalog."C" PRIMARY KEY,
	enabled pg_catalog.bool,
	provider pg_catalog.text,
	default_lease pg_catalog.interval,
	max_lease pg_catalog.interval,
	max_hold pg_catalog.interval,
	retry hloom_retry_policy,
	auto_extend pg_catalog.bool,
	detect_reentrancy pg_catalog.bool,
	max_key_length pg_catalog.int4,
	role pg_catalog.text
) USING heap;

COMMENT ON TABLE hloom_namespaces IS
'options of namespaces, written by hloom_configure() and hloom_unconfigure(); NULL: the setting applies';
COMMENT ON COLUMN hloom_namespaces.namespace IS '1 to 63 of the characters a-z, 0-9 and "-"';
COMMENT ON COLUMN hloom_namespaces.enabled IS 'false: every call succeeds and nothing is locked; NULL: hloom_lock.enabled';
COMMENT ON COLUMN hloom_namespaces.provider IS 'who keeps the leases; NULL: hloom_lock.provider';
COMMENT ON COLUMN hloom_namespaces.default_lease IS 'lease of a call that names none; NULL: hloom_lock.default_lease';
COMMENT ON COLUMN hloom_namespaces.max_lease IS 'longest lease granted; NULL: hloom_lock.max_lease';
COMMENT ON COLUMN hloom_namespaces.max_hold IS 'a lease older than this is not renewed by the server; NULL: hloom_lock.max_hold';
COMMENT ON COLUMN hloom_namespaces.retry IS 'retry policy of a call that names none; NULL: hloom_lock.retry_limit, retry_step and retry_jitter';
COMMENT ON COLUMN hloom_namespaces.auto_extend IS 'whether the server renews leases; NULL: hloom_lock.auto_extend. Of scope session and transaction';
COMMENT ON COLUMN hloom_namespaces.detect_reentrancy IS 'whether locking a key again inside its own action is an error; NULL: hloom_lock.detect_reentrancy';
COMMENT ON COLUMN hloom_namespaces.max_key_length IS 'longest key accepted, in characters; NULL: hloom_lock.max_key_length';
COMMENT ON COLUMN hloom_namespaces.role IS 'only members of this role may use the namespace, resolved by name at each call; NULL: anybody';

CREATE FUNCTION hloom_namespaces_changed() RETURNS pg_catalog.trigger
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_namespaces_trigger';

COMMENT ON FUNCTION hloom_namespaces_changed() IS
'trigger of hloom_namespaces: refuses rows that are not valid and lets every session notice a change';

REVOKE ALL ON FUNCTION hloom_namespaces_changed() FROM PUBLIC;

CREATE TRIGGER hloom_namespaces_row BEFORE INSERT OR UPDATE OR DELETE ON hloom_namespaces
FOR EACH ROW EXECUTE FUNCTION hloom_namespaces_changed();

COMMENT ON TRIGGER hloom_namespaces_row ON hloom_namespaces IS
'refuses rows that are not valid and lets every session notice a change';

CREATE TRIGGER hloom_namespaces_truncate BEFORE TRUNCATE ON hloom_namespaces
FOR EACH STATEMENT EXECUTE FUNCTION hloom_namespaces_changed();

COMMENT ON TRIGGER hloom_namespaces_truncate ON hloom_namespaces IS
'lets every session notice that the table is emptied';

-- Also for what is restored or replicated.
ALTER TABLE hloom_namespaces ENABLE ALWAYS TRIGGER hloom_namespaces_row;
ALTER TABLE hloom_namespaces ENABLE ALWAYS TRIGGER hloom_namespaces_truncate;

SELECT pg_catalog.pg_extension_config_dump('hloom_namespaces', '');

GRANT SELECT ON hloom_namespaces TO pg_monitor;

CREATE FUNCTION hloom_configure(
	namespace pg_catalog.text,
	enabled pg_catalog.bool DEFAULT NULL,
	provider pg_catalog.text DEFAULT NULL,
	default_lease pg_catalog.interval DEFAULT NULL,
	max_lease pg_catalog.interval DEFAULT NULL,
	max_hold pg_catalog.interval DEFAULT NULL,
	retry hloom_retry_policy DEFAULT NULL,
	auto_extend pg_catalog.bool DEFAULT NULL,
	detect_reentrancy pg_catalog.bool DEFAULT NULL,
	max_key_length pg_catalog.int4 DEFAULT NULL,
	role pg_catalog.text DEFAULT NULL,
	reset pg_catalog.text[] DEFAULT NULL
) RETURNS hloom_namespaces
LANGUAGE C VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'hloom_sql_configure';

COMMENT ON FUNCTION hloom_configure(text, boolean, text, interval, interval, interval, hloom_retry_policy, boolean, boolean, integer, text, text[]) IS
'sets options of a namespace and returns its row: NULL keeps an option, reset names those to return to the setting. Counts from COMMIT on, for every session. Errors: 22004, 22023 with everything that is wrong, 25006, 42704, 55000, 55006 for another provider while there are leases, 0A000, LL003';

REVOKE ALL ON FUNCTION hloom_configure(pg_catalog.text, pg_catalog.bool, pg_catalog.text, pg_catalog.interval, pg_catalog.interval, pg_catalog.interval, hloom_retry_policy, pg_catalog.bool, pg_catalog.bool, pg_catalog.int4, pg_catalog.text, pg_catalog.text[]) FROM PUBLIC;

CREATE FUNCTION hloom_unconfigure(namespace pg_catalog.text) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'hloom_sql_unconfigure';

COMMENT ON FUNCTION hloom_unconfigure(text) IS
'removes the options of a namespace, so that the settings apply; false when there were none. Errors: 22004, 22023, 25006, 55000, 55006 for another provider while there are leases, LL003';

REVOKE ALL ON FUNCTION hloom_unconfigure(pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION hloom_describe(namespace pg_catalog.text)
RETURNS TABLE (part pg_catalog.text, value pg_catalog.text, decided_by pg_catalog.text)
LANGUAGE C VOLATILE PARALLEL UNSAFE
ROWS 12
AS 'MODULE_PATHNAME', 'hloom_sql_describe';

COMMENT ON FUNCTION hloom_describe(text) IS
'what applies to a namespace now, and which setting or table decides it; asks no provider. Errors: 22004, 22023, 42501, 42704, 55000, 0A000';

CREATE FUNCTION hloom_is_coordinated(namespace pg_catalog.text) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_is_coordinated';

COMMENT ON FUNCTION hloom_is_coordinated(text) IS
'whether locks of the namespace are coordinated; false when it is disabled. Errors: 22004, 22023, 42501, 42704, 55000, 0A000';

-- Taking, keeping, giving back ----------------------------------------------------------------

CREATE FUNCTION hloom_try_acquire(
	namespace pg_catalog.text,
	key pg_catalog.text,
	lease pg_catalog.interval DEFAULT NULL,
	max_wait pg_catalog.interval DEFAULT NULL,
	retry hloom_retry_policy DEFAULT NULL,
	auto_extend pg_catalog.bool DEFAULT NULL,
	on_lost pg_catalog.text DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	owner pg_catalog.uuid DEFAULT NULL,
	note pg_catalog.text DEFAULT NULL
) RETURNS SETOF hloom_handle
LANGUAGE C VOLATILE PARALLEL UNSAFE
ROWS 1
AS 'MODULE_PATHNAME', 'hloom_sql_try_acquire';

COMMENT ON FUNCTION hloom_try_acquire(text, text, interval, interval, hloom_retry_policy, boolean, text, text, uuid, text) IS
'takes a lease: one row, or no row when another owner holds the key. lease: duration from the request, default hloom_lock.default_lease, capped by hloom_lock.max_lease with a notice. max_wait: longest wait, default none, then one attempt unless retry is given. retry: when a busy key is tried again, default the policy of the namespace. owner: a token of the caller''s own makes a retry idempotent. scope: lease (default: outlives transaction and session), session or transaction, with which it is given back. auto_extend: the server renews a lease of scope session or transaction while its backend lives, until max_hold. on_lost: cancel ends statements, and keeps a transaction it follows from committing, when it is lost. Errors: 22004, 22023, 25006, 42501, 42704, 53400, 55000, 55006, LL001 to LL004, LL010; when it waits, 55P03 when lock_timeout is over, and 40P01 for a deadlock; warns (25P01) for scope transaction outside a transaction block';

CREATE FUNCTION hloom_acquire(
	namespace pg_catalog.text,
	key pg_catalog.text,
	lease pg_catalog.interval DEFAULT NULL,
	max_wait pg_catalog.interval DEFAULT NULL,
	retry hloom_retry_policy DEFAULT NULL,
	auto_extend pg_catalog.bool DEFAULT NULL,
	on_lost pg_catalog.text DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	owner pg_catalog.uuid DEFAULT NULL,
	note pg_catalog.text DEFAULT NULL
) RETURNS SETOF hloom_handle
LANGUAGE C VOLATILE PARALLEL UNSAFE
ROWS 1
AS 'MODULE_PATHNAME', 'hloom_sql_acquire';

COMMENT ON FUNCTION hloom_acquire(text, text, interval, interval, hloom_retry_policy, boolean, text, text, uuid, text) IS
'takes a lease: one row, or error 55P03, whose DETAIL tells who holds the key until when. Waits as retry says (default: the policy of the namespace), at most max_wait. Options and other errors as of hloom_try_acquire(); 55P03 also when lock_timeout is over';

CREATE PROCEDURE hloom_acquire_wait(
	namespace pg_catalog.text,
	key pg_catalog.text,
	INOUT owner pg_catalog.uuid DEFAULT NULL,
	INOUT fence pg_catalog.int8 DEFAULT NULL,
	INOUT lease_end pg_catalog.timestamptz DEFAULT NULL,
	lease pg_catalog.interval DEFAULT NULL,
	max_wait pg_catalog.interval DEFAULT NULL,
	retry hloom_retry_policy DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	note pg_catalog.text DEFAULT NULL
)
LANGUAGE C
AS 'MODULE_PATHNAME', 'hloom_sql_acquire_wait';

COMMENT ON PROCEDURE hloom_acquire_wait(text, text, uuid, bigint, timestamptz, interval, interval, hloom_retry_policy, text, text) IS
'takes a lease as hloom_acquire() does, and waits for a busy key without snapshot, xid and transaction, so that VACUUM is not held back: one row, or error 55P03. owner: a token of the caller''s own, or NULL for a new one; fence and lease_end: results, what is passed for them is ignored. lease, max_wait, retry, note: as of hloom_acquire(). scope: lease (default) or session, with which the namespace''s auto_extend counts. Commits the transaction it is called in, so it is a CALL by itself with autocommit on: 25001 in a transaction block, in a pipeline after another statement, and in a function, procedure or DO block. Other errors as of hloom_acquire()';

CREATE FUNCTION hloom_release(namespace pg_catalog.text, key pg_catalog.text, owner pg_catalog.uuid) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_release';

COMMENT ON FUNCTION hloom_release(text, text, uuid) IS
'gives a lease back: true for the owner, false for anybody else and after the end; NULL with a warning when it is not known. Errors: 22004, 22023, 25006, 55000, 55006';

CREATE FUNCTION hloom_release(namespace pg_catalog.text, key pg_catalog.text, owner pg_catalog.text) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_release_text';

COMMENT ON FUNCTION hloom_release(text, text, text) IS
'gives a lease back: true for the owner, false for anybody else and after the end; NULL with a warning when it is not known. Errors: 22004, 22023, 25006, 55000, 55006; owner as text, 22P02 when it is no uuid';

CREATE FUNCTION hloom_release(handle hloom_handle) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_release_handle';

COMMENT ON FUNCTION hloom_release(hloom_handle) IS
'gives a lease back by its handle; false for a NULL or all-NULL handle';

CREATE FUNCTION hloom_extend(namespace pg_catalog.text, key pg_catalog.text, owner pg_catalog.uuid, lease pg_catalog.interval DEFAULT NULL) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_extend';

COMMENT ON FUNCTION hloom_extend(text, text, uuid, interval) IS
'lets the lease end the given duration from now (default: as long as last granted; may shorten): true for the owner, false when it is lost, expired, released or another''s, and with a warning when the store did not answer. Errors: 22004, 22023, 25006, 55000, 55006';

CREATE FUNCTION hloom_extend(namespace pg_catalog.text, key pg_catalog.text, owner pg_catalog.text, lease pg_catalog.interval DEFAULT NULL) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_extend_text';

COMMENT ON FUNCTION hloom_extend(text, text, text, interval) IS
'lets the lease end the given duration from now (default: as long as last granted; may shorten): true for the owner, false when it is lost, expired, released or another''s, and with a warning when the store did not answer. Errors: 22004, 22023, 25006, 55000, 55006; owner as text, 22P02 when it is no uuid';

CREATE FUNCTION hloom_extend(handle hloom_handle, lease pg_catalog.interval DEFAULT NULL) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_extend_handle';

COMMENT ON FUNCTION hloom_extend(hloom_handle, interval) IS
'lets the lease of a handle end the given duration from now; false for a NULL or all-NULL handle';

CREATE FUNCTION hloom_is_held(namespace pg_catalog.text, key pg_catalog.text, owner pg_catalog.uuid) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_is_held';

COMMENT ON FUNCTION hloom_is_held(text, text, uuid) IS
'whether the owner holds the lease now. Errors: 22004, 22023, 25006 on a standby, 55000, LL003';

CREATE FUNCTION hloom_is_held(namespace pg_catalog.text, key pg_catalog.text, owner pg_catalog.text) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_is_held_text';

COMMENT ON FUNCTION hloom_is_held(text, text, text) IS
'whether the owner holds the lease now. Errors: 22004, 22023, 25006 on a standby, 55000, LL003; owner as text, 22P02 when it is no uuid';

CREATE FUNCTION hloom_is_held(handle hloom_handle) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_is_held_handle';

COMMENT ON FUNCTION hloom_is_held(hloom_handle) IS
'whether the lease of a handle is held now; false for a NULL or all-NULL handle';

CREATE FUNCTION hloom_remaining(namespace pg_catalog.text, key pg_catalog.text, owner pg_catalog.uuid) RETURNS pg_catalog.interval
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_remaining';

COMMENT ON FUNCTION hloom_remaining(text, text, uuid) IS
'how long the owner still holds the lease; NULL when it does not. Errors: 22004, 22023, 25006 on a standby, 55000, LL003';

CREATE FUNCTION hloom_remaining(namespace pg_catalog.text, key pg_catalog.text, owner pg_catalog.text) RETURNS pg_catalog.interval
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_remaining_text';

COMMENT ON FUNCTION hloom_remaining(text, text, text) IS
'how long the owner still holds the lease; NULL when it does not. Errors: 22004, 22023, 25006 on a standby, 55000, LL003; owner as text, 22P02 when it is no uuid';

CREATE FUNCTION hloom_remaining(handle hloom_handle) RETURNS pg_catalog.interval
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_remaining_handle';

COMMENT ON FUNCTION hloom_remaining(hloom_handle) IS
'how long the lease of a handle is still held; NULL when it is not';

CREATE FUNCTION hloom_guard(namespace pg_catalog.text, key pg_catalog.text, owner pg_catalog.uuid) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_guard';

COMMENT ON FUNCTION hloom_guard(text, text, uuid) IS
'makes the transaction depend on a lease: it can commit only if the owner still holds the lease then. Returns true; error LL010 unless the owner holds it now. Warns (25P01) outside a transaction block. Other errors: 22004, 22023, 25006 on a standby, 55000, LL003, 0A000 for a provider without guards; COMMIT raises LL010, 53400 when hloom_lock.max_tracked_leases are used up';

CREATE FUNCTION hloom_guard(namespace pg_catalog.text, key pg_catalog.text, owner pg_catalog.text) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_guard_text';

COMMENT ON FUNCTION hloom_guard(text, text, text) IS
'makes the transaction depend on a lease: it can commit only if the owner still holds the lease then. Returns true; error LL010 unless the owner holds it now. Warns (25P01) outside a transaction block. Other errors: 22004, 22023, 25006 on a standby, 55000, LL003, 0A000 for a provider without guards; COMMIT raises LL010, 53400 when hloom_lock.max_tracked_leases are used up; owner as text, 22P02 when it is no uuid';

CREATE FUNCTION hloom_guard(handle hloom_handle) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_guard_handle';

COMMENT ON FUNCTION hloom_guard(hloom_handle) IS
'makes the transaction depend on the lease of a handle; LL010 for a NULL or all-NULL handle, too';

CREATE FUNCTION hloom_force_release(namespace pg_catalog.text, key pg_catalog.text, reason pg_catalog.text) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_force_release';

COMMENT ON FUNCTION hloom_force_release(text, text, text) IS
'takes a lease away from whoever holds it, and logs who did so and why; true when somebody held it. The holder is told as of any loss. Errors: 22004, 22023, 25006, 55000, 55006 while a commit depends on the lease, with its process, 0A000 for a provider that cannot do it, LL002 to LL004';

REVOKE ALL ON FUNCTION hloom_force_release(pg_catalog.text, pg_catalog.text, pg_catalog.text) FROM PUBLIC;

CREATE FUNCTION hloom_execute_with_lock(
	namespace pg_catalog.text,
	key pg_catalog.text,
	action pg_catalog.text,
	args pg_catalog.text[] DEFAULT NULL,
	lease pg_catalog.interval DEFAULT NULL,
	max_wait pg_catalog.interval DEFAULT NULL,
	retry hloom_retry_policy DEFAULT NULL,
	auto_extend pg_catalog.bool DEFAULT NULL,
	on_lost pg_catalog.text DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	owner pg_catalog.uuid DEFAULT NULL,
	note pg_catalog.text DEFAULT NULL
) RETURNS pg_catalog.int8
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_execute';

COMMENT ON FUNCTION hloom_execute_with_lock(text, text, text, text[], interval, interval, hloom_retry_policy, boolean, text, text, uuid, text) IS
'takes a lease, runs one SQL command with $1 .. $n from args, and gives the lease back, whatever the outcome: with scope transaction, the default, when the transaction has ended and others see what it wrote, otherwise at the end of the call. Returns the number of rows processed. Errors: those of hloom_acquire(); the action''s own, unchanged; 22004, 22023, 42601, 2D000 for what cannot be an action; 22023 for a wrong number of args; 0A000 above READ COMMITTED; LL001 for a key the running action has locked';

CREATE FUNCTION hloom_query_with_lock(
	namespace pg_catalog.text,
	key pg_catalog.text,
	action pg_catalog.text,
	args pg_catalog.text[] DEFAULT NULL,
	lease pg_catalog.interval DEFAULT NULL,
	max_wait pg_catalog.interval DEFAULT NULL,
	retry hloom_retry_policy DEFAULT NULL,
	auto_extend pg_catalog.bool DEFAULT NULL,
	on_lost pg_catalog.text DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	owner pg_catalog.uuid DEFAULT NULL,
	note pg_catalog.text DEFAULT NULL
) RETURNS SETOF pg_catalog.record
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_query';

COMMENT ON FUNCTION hloom_query_with_lock(text, text, text, text[], interval, interval, hloom_retry_policy, boolean, text, text, uuid, text) IS
'as hloom_execute_with_lock(), but returns the action''s rows, which must fit the column definition list: 42804. 42601 for a command without rows';

CREATE FUNCTION hloom_query_with_lock_json(
	namespace pg_catalog.text,
	key pg_catalog.text,
	action pg_catalog.text,
	args pg_catalog.text[] DEFAULT NULL,
	lease pg_catalog.interval DEFAULT NULL,
	max_wait pg_catalog.interval DEFAULT NULL,
	retry hloom_retry_policy DEFAULT NULL,
	auto_extend pg_catalog.bool DEFAULT NULL,
	on_lost pg_catalog.text DEFAULT NULL,
	scope pg_catalog.text DEFAULT NULL,
	owner pg_catalog.uuid DEFAULT NULL,
	note pg_catalog.text DEFAULT NULL
) RETURNS SETOF pg_catalog.jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_query_json';

COMMENT ON FUNCTION hloom_query_with_lock_json(text, text, text, text[], interval, interval, hloom_retry_policy, boolean, text, text, uuid, text) IS
'as hloom_query_with_lock(), but returns each row as one jsonb object, without a column definition list';

CREATE FUNCTION hloom_release_session() RETURNS pg_catalog.int8
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_release_session';

COMMENT ON FUNCTION hloom_release_session() IS
'gives back the leases of scope session that this session took, and returns how many; DISCARD ALL does the same. Errors: 25006, 55000';

CREATE FUNCTION hloom_reap() RETURNS pg_catalog.int8
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_reap';

COMMENT ON FUNCTION hloom_reap() IS
'removes expired leases now, counts each as lost, and returns how many; the server does so by itself before long. Errors: 25006, 55000, 55006 in a transaction that truncated the table, LL003';

REVOKE ALL ON FUNCTION hloom_reap() FROM PUBLIC;

CREATE FUNCTION hloom_key_from_sensitive(value pg_catalog.text) RETURNS pg_catalog.text
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_key_from_sensitive';

COMMENT ON FUNCTION hloom_key_from_sensitive(text) IS
'a lock key that does not tell its source, for values nobody can guess: 32 hex digits of the SHA-256 of the value in UTF-8. Errors: 22004, 22021, 22P05';

CREATE FUNCTION hloom_key_from_sensitive(value pg_catalog.text, secret pg_catalog.bytea) RETURNS pg_catalog.text
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_key_from_sensitive_keyed';

COMMENT ON FUNCTION hloom_key_from_sensitive(text, bytea) IS
'a lock key that does not tell its source, for values that could be guessed: 32 hex digits of the HMAC-SHA-256 of the value in UTF-8 under the secret. Errors: 22004, 22021, 22023, 22P05';

-- Retry policies ------------------------------------------------------------------------------

CREATE FUNCTION hloom_retry_immediate(retries pg_catalog.int4) RETURNS hloom_retry_policy
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_retry_immediate';

COMMENT ON FUNCTION hloom_retry_immediate(integer) IS
'a retry policy without delays: up to retries (0 to 1000000) more attempts after the first. Errors: 22004, 22023';

CREATE FUNCTION hloom_retry_interval(retries pg_catalog.int4, delay pg_catalog.interval) RETURNS hloom_retry_policy
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_retry_interval';

COMMENT ON FUNCTION hloom_retry_interval(integer, interval) IS
'a retry policy with the same delay (zero or more) before each of up to retries (0 to 1000000) more attempts. Errors: 22004, 22023';

CREATE FUNCTION hloom_retry_linear(retries pg_catalog.int4, step pg_catalog.interval) RETURNS hloom_retry_policy
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_retry_linear';

COMMENT ON FUNCTION hloom_retry_linear(integer, interval) IS
'a retry policy with a delay of n steps (zero or more) before retry n, for up to retries (0 to 1000000) more attempts. Errors: 22004, 22023';

CREATE FUNCTION hloom_retry_exponential(retries pg_catalog.int4, min pg_catalog.interval, max pg_catalog.interval, factor pg_catalog.float8 DEFAULT 2) RETURNS hloom_retry_policy
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_retry_exponential';

COMMENT ON FUNCTION hloom_retry_exponential(integer, interval, interval, double precision) IS
'a retry policy with delays that begin with min (zero or more) and grow by factor (at least 1, default 2) up to max, for up to retries (0 to 1000000) more attempts. Errors: 22004, 22023';

CREATE FUNCTION hloom_retry_with_jitter(policy hloom_retry_policy, jitter pg_catalog.interval) RETURNS hloom_retry_policy
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_retry_with_jitter';

COMMENT ON FUNCTION hloom_retry_with_jitter(hloom_retry_policy, interval) IS
'the policy with jitter, in place of any it had: each delay grows by a random share of it (zero or more; the share is below 1). Errors: 22004, 22023';

CREATE FUNCTION hloom_retry_delay(policy hloom_retry_policy, n pg_catalog.int4) RETURNS pg_catalog.interval
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_retry_delay';

COMMENT ON FUNCTION hloom_retry_delay(hloom_retry_policy, integer) IS
'the delay before retry n (1 or more, also beyond the policy''s retries), without jitter; at most 2^63 - 1 microseconds. Errors: 22004, 22023';

CREATE FUNCTION hloom_retry_max_total_delay(policy hloom_retry_policy) RETURNS pg_catalog.interval
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_retry_max_total_delay';

COMMENT ON FUNCTION hloom_retry_max_total_delay(hloom_retry_policy) IS
'the longest time all retries of the policy wait: the sum of their delays, each with the whole jitter; at most 2^63 - 1 microseconds. Errors: 22004, 22023';

CREATE FUNCTION hloom_retry_describe(policy hloom_retry_policy) RETURNS pg_catalog.text
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_retry_describe';

COMMENT ON FUNCTION hloom_retry_describe(hloom_retry_policy) IS
'the policy in words, with durations in whole milliseconds. Errors: 22004, 22023';

-- Looking --------------------------------------------------------------------------------------

CREATE FUNCTION hloom_locks(
	OUT namespace pg_catalog.text,
	OUT key pg_catalog.text,
	OUT holder pg_catalog.text,
	OUT application pg_catalog.text,
	OUT state pg_catalog.text,
	OUT held_for pg_catalog.interval,
	OUT remaining pg_catalog.interval,
	OUT freed_by pg_catalog.text,
	OUT fence pg_catalog.int8,
	OUT waiters pg_catalog.int8,
	OUT holder_pid pg_catalog.int4,
	OUT note pg_catalog.text
) RETURNS SETOF pg_catalog.record
LANGUAGE C VOLATILE PARALLEL UNSAFE
ROWS 1000
AS 'MODULE_PATHNAME', 'hloom_sql_locks';

COMMENT ON FUNCTION hloom_locks() IS
'behind view hloom_locks. Errors: 55000, LL003';

CREATE VIEW hloom_locks AS
	SELECT namespace, key, holder, application, state, held_for, remaining, freed_by, fence, waiters, holder_pid, note
	FROM hloom_locks();

COMMENT ON VIEW hloom_locks IS
'leases held now, and keys kept for a waiter, of the namespaces the current user may use, of all for members of pg_monitor; without owner tokens';
COMMENT ON COLUMN hloom_locks.namespace IS 'namespace of the key';
COMMENT ON COLUMN hloom_locks.key IS 'what is locked, within its namespace';
COMMENT ON COLUMN hloom_locks.holder IS 'role that took the lease, or that the key is kept for; NULL: dropped since';
COMMENT ON COLUMN hloom_locks.application IS 'application_name of the session that took the lease, or that the key is kept for';
COMMENT ON COLUMN hloom_locks.state IS 'held; committing: a commit depends on the lease; reserved: nobody holds the key, it is kept for a moment for a waiter that was woken';
COMMENT ON COLUMN hloom_locks.held_for IS 'since the lease was granted; NULL: reserved';
COMMENT ON COLUMN hloom_locks.remaining IS 'until the lease ends unless it is extended, or until the key is kept for the waiter no more';
COMMENT ON COLUMN hloom_locks.freed_by IS 'what frees the key if its owner does not: its end, backend exit, transaction end, or commit, the end of the one that depends on it';
COMMENT ON COLUMN hloom_locks.fence IS 'fencing token: grows with every grant of the key; NULL: reserved';
COMMENT ON COLUMN hloom_locks.waiters IS 'how many sessions wait for the key, with the one it is kept for; see hloom_waiters';
COMMENT ON COLUMN hloom_locks.holder_pid IS 'server process that took the lease; of one that is committing, the one that commits; of a reserved key, the one it is kept for. NULL: it is gone, or belongs to another server';
COMMENT ON COLUMN hloom_locks.note IS 'free text of the call that took the lease';

GRANT SELECT ON hloom_locks TO PUBLIC;

CREATE FUNCTION hloom_waiters(
	OUT pid pg_catalog.int4,
	OUT role pg_catalog.text,
	OUT application_name pg_catalog.text,
	OUT namespace pg_catalog.text,
	OUT key pg_catalog.text,
	OUT waiting_since pg_catalog.timestamptz,
	OUT attempts pg_catalog.int8,
	OUT "position" pg_catalog.int4,
	OUT gives_up_at pg_catalog.timestamptz,
	OUT holder_pid pg_catalog.int4,
	OUT holder_role pg_catalog.text,
	OUT holder_until pg_catalog.timestamptz
) RETURNS SETOF pg_catalog.record
LANGUAGE C VOLATILE PARALLEL UNSAFE
ROWS 100
AS 'MODULE_PATHNAME', 'hloom_sql_waiters';

COMMENT ON FUNCTION hloom_waiters() IS
'behind view hloom_waiters. Errors: 55000';

CREATE VIEW hloom_waiters AS
	SELECT pid, role, application_name, namespace, key, waiting_since, attempts, "position", gives_up_at, holder_pid, holder_role, holder_until
	FROM hloom_waiters();

COMMENT ON VIEW hloom_waiters IS
'sessions of this database that wait for a key of a namespace the current user may use, of any for members of pg_monitor, and who holds that key now';
COMMENT ON COLUMN hloom_waiters.pid IS 'server process that waits';
COMMENT ON COLUMN hloom_waiters.role IS 'role that waits; NULL: dropped since';
COMMENT ON COLUMN hloom_waiters.application_name IS 'application_name of the session that waits';
COMMENT ON COLUMN hloom_waiters.namespace IS 'namespace of the key';
COMMENT ON COLUMN hloom_waiters.key IS 'what is waited for, within its namespace';
COMMENT ON COLUMN hloom_waiters.waiting_since IS 'when the key was refused for the first time';
COMMENT ON COLUMN hloom_waiters.attempts IS 'how often the key was refused so far';
COMMENT ON COLUMN hloom_waiters.position IS 'place among those who wait for the key: 1 has waited longest, and is woken first unless it has missed its turn';
COMMENT ON COLUMN hloom_waiters.gives_up_at IS 'when the wait ends at the latest by max_wait, the retry policy and lock_timeout; NULL: never, or not known yet';
COMMENT ON COLUMN hloom_waiters.holder_pid IS 'server process that took the lease in the way; NULL: it is gone, or belongs to another server, or nobody holds the key now, or the provider does not tell';
COMMENT ON COLUMN hloom_waiters.holder_role IS 'role that took that lease; NULL: dropped since, or nobody holds the key now, or the provider does not tell';
COMMENT ON COLUMN hloom_waiters.holder_until IS 'when that lease ends unless it is extended; NULL: nobody holds the key now, or the provider does not tell';

GRANT SELECT ON hloom_waiters TO PUBLIC;

CREATE FUNCTION hloom_blocking_pids(pid pg_catalog.int4) RETURNS pg_catalog.int4[]
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_blocking_pids';

COMMENT ON FUNCTION hloom_blocking_pids(integer) IS
'the processes a process waits for to get a key: the one that took the lease, if it still runs, then those that come before it among the waiters, in their order; empty when it waits for no key of this database, or of a namespace the current user may not use. As pg_blocking_pids() is for PostgreSQL''s own locks. Errors: 55000';

CREATE FUNCTION hloom_activities(
	OUT started_at pg_catalog.timestamptz,
	OUT duration_ms pg_catalog.float8,
	OUT name pg_catalog.text,
	OUT namespace pg_catalog.text,
	OUT key pg_catalog.text,
	OUT key_cut pg_catalog.bool,
	OUT acquired pg_catalog.bool,
	OUT wait_ms pg_catalog.float8,
	OUT hold_ms pg_catalog.float8,
	OUT trace_id pg_catalog.text,
	OUT span_id pg_catalog.text,
	OUT parent_span_id pg_catalog.text,
	OUT sampled pg_catalog.bool,
	OUT pid pg_catalog.int4,
	OUT role pg_catalog.text
) RETURNS SETOF pg_catalog.record
LANGUAGE C VOLATILE PARALLEL UNSAFE
ROWS 1000
AS 'MODULE_PATHNAME', 'hloom_sql_activities';

COMMENT ON FUNCTION hloom_activities() IS
'behind view hloom_activities. Errors: 55000';

CREATE VIEW hloom_activities AS
	SELECT started_at, duration_ms, name, namespace, key, key_cut, acquired, wait_ms, hold_ms, trace_id, span_id, parent_span_id, sampled, pid, role
	FROM hloom_activities();

COMMENT ON VIEW hloom_activities IS
'the latest acquisitions and locked actions that are over, of the namespaces the current user may use, of all for members of pg_monitor; as spans of traces';
COMMENT ON COLUMN hloom_activities.started_at IS 'when it began, by the server''s clock';
COMMENT ON COLUMN hloom_activities.duration_ms IS 'milliseconds it took';
COMMENT ON COLUMN hloom_activities.name IS 'lock.acquire: an acquisition; lock.execute: an action with the acquisition before it';
COMMENT ON COLUMN hloom_activities.namespace IS 'namespace of the key';
COMMENT ON COLUMN hloom_activities.key IS 'what was to be locked, within its namespace; the first 160 bytes';
COMMENT ON COLUMN hloom_activities.key_cut IS 'whether the key is longer';
COMMENT ON COLUMN hloom_activities.acquired IS 'whether the lease was granted; NULL: the acquisition was cut short, or it is lock.execute';
COMMENT ON COLUMN hloom_activities.wait_ms IS 'milliseconds until the key was granted or given up; NULL: neither, or it is lock.execute';
COMMENT ON COLUMN hloom_activities.hold_ms IS 'milliseconds from the request of the lease until it was given back, or the call ended whose lease ends with the transaction; NULL: there was no lease, or it is lock.acquire';
COMMENT ON COLUMN hloom_activities.trace_id IS 'the trace it is part of, 32 hex digits: the one of hloom_lock.traceparent, or a new one';
COMMENT ON COLUMN hloom_activities.span_id IS 'its own id, 16 hex digits';
COMMENT ON COLUMN hloom_activities.parent_span_id IS 'what it is part of: the lock.execute it was made in, or the span of hloom_lock.traceparent; NULL: nothing known';
COMMENT ON COLUMN hloom_activities.sampled IS 'whether who began the trace records it; NULL: it was begun here';
COMMENT ON COLUMN hloom_activities.pid IS 'server process that made it; it may be gone';
COMMENT ON COLUMN hloom_activities.role IS 'role that made it; NULL: dropped since';

GRANT SELECT ON hloom_activities TO PUBLIC;

CREATE FUNCTION hloom_losses(
	OUT noticed_at pg_catalog.timestamptz,
	OUT namespace pg_catalog.text,
	OUT key pg_catalog.text,
	OUT fence pg_catalog.int8,
	OUT reason pg_catalog.text,
	OUT granted_at pg_catalog.timestamptz,
	OUT lease_end pg_catalog.timestamptz,
	OUT holder pg_catalog.text,
	OUT holder_pid pg_catalog.int4
) RETURNS SETOF pg_catalog.record
LANGUAGE C VOLATILE PARALLEL UNSAFE
ROWS 1000
AS 'MODULE_PATHNAME', 'hloom_sql_losses';

COMMENT ON FUNCTION hloom_losses() IS
'behind view hloom_losses. Errors: 55000';

CREATE VIEW hloom_losses AS
	SELECT noticed_at, namespace, key, fence, reason, granted_at, lease_end, holder, holder_pid
	FROM hloom_losses();

COMMENT ON VIEW hloom_losses IS
'the latest leases of this database that were lost, of the namespaces the current user may use, of all for members of pg_monitor; in memory, gone with the server';
COMMENT ON COLUMN hloom_losses.noticed_at IS 'when the loss was noticed and counted';
COMMENT ON COLUMN hloom_losses.namespace IS 'namespace of the key';
COMMENT ON COLUMN hloom_losses.key IS 'what was locked, within its namespace';
COMMENT ON COLUMN hloom_losses.fence IS 'number of the grant';
COMMENT ON COLUMN hloom_losses.reason IS 'expired: it ended before it was given back; taken away: by hloom_force_release';
COMMENT ON COLUMN hloom_losses.granted_at IS 'when it was granted';
COMMENT ON COLUMN hloom_losses.lease_end IS 'when it ended, or would have';
COMMENT ON COLUMN hloom_losses.holder IS 'role that took it; NULL: dropped since';
COMMENT ON COLUMN hloom_losses.holder_pid IS 'server process that took it; it may be gone, or be of a former server';

GRANT SELECT ON hloom_losses TO PUBLIC;

CREATE FUNCTION hloom_health(
	namespace pg_catalog.text DEFAULT NULL,
	OUT provider pg_catalog.text,
	OUT healthy pg_catalog.bool,
	OUT detail pg_catalog.text,
	OUT latency pg_catalog.interval,
	OUT worker pg_catalog.text
) RETURNS SETOF pg_catalog.record
LANGUAGE C VOLATILE PARALLEL UNSAFE
ROWS 1
AS 'MODULE_PATHNAME', 'hloom_sql_health';

COMMENT ON FUNCTION hloom_health(text) IS
'whether locks can be taken here now, one row for each provider or for the one of a namespace; detail tells who is in the way, latency how long the check took, worker what the background worker of this database does: running, starting, late, missing, or not running because there is nothing to do. Waits a second at most for a locked table. Errors: 22023, 42704';

REVOKE EXECUTE ON FUNCTION hloom_health(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION hloom_health(text) TO pg_monitor;

CREATE FUNCTION hloom_metrics(
	active pg_catalog.bool DEFAULT true,
	OUT namespace pg_catalog.text,
	OUT name pg_catalog.text,
	OUT outcome pg_catalog.text,
	OUT le pg_catalog.float8,
	OUT value pg_catalog.float8
) RETURNS SETOF pg_catalog.record
LANGUAGE C VOLATILE PARALLEL UNSAFE
ROWS 500
AS 'MODULE_PATHNAME', 'hloom_sql_metrics';

COMMENT ON FUNCTION hloom_metrics(boolean) IS
'behind view hloom_metrics. With active false it leaves out hostloom_lock_active, the one metric that takes as long as there are leases. Errors: 55000';

REVOKE EXECUTE ON FUNCTION hloom_metrics(boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION hloom_metrics(boolean) TO pg_monitor;

CREATE VIEW hloom_metrics AS
	SELECT namespace, name, outcome, le, value FROM hloom_metrics();

COMMENT ON VIEW hloom_metrics IS
'what is counted in this database since shared memory was made or hloom_metrics_reset() was called, and what is so now: one row for each series of a metric';
COMMENT ON COLUMN hloom_metrics.namespace IS 'namespace counted; (other) for those that found no place, of all databases; NULL where the metric has none';
COMMENT ON COLUMN hloom_metrics.name IS 'name of the metric, ending in its unit';
COMMENT ON COLUMN hloom_metrics.outcome IS 'how it ended; NULL where the metric has no outcome';
COMMENT ON COLUMN hloom_metrics.le IS 'upper bound of a bucket of a histogram, inclusive, in seconds; value counts all up to it; NULL for what is no bucket';
COMMENT ON COLUMN hloom_metrics.value IS 'a count, or seconds; grows until the server restarts, but for hostloom_lock_active and hostloom_lock_enabled';

GRANT SELECT ON hloom_metrics TO pg_monitor;

CREATE FUNCTION hloom_openmetrics() RETURNS pg_catalog.text
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_openmetrics';

COMMENT ON FUNCTION hloom_openmetrics() IS
'returns what hloom_metrics shows as OpenMetrics text, in seconds and with the database as label datname. Errors: 55000';

REVOKE EXECUTE ON FUNCTION hloom_openmetrics() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION hloom_openmetrics() TO pg_monitor;

CREATE FUNCTION hloom_metrics_reset() RETURNS pg_catalog.void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_metrics_reset';

COMMENT ON FUNCTION hloom_metrics_reset() IS
'sets the counters of this database to 0; those of (other), which all databases share, stay. Errors: 55000';

REVOKE EXECUTE ON FUNCTION hloom_metrics_reset() FROM PUBLIC;
