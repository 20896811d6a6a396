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
'how often and after which delays a busy key is tried again';

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
'takes a lease: one row, or no row when another owner holds the key. lease: duration from the request, default hloom_lock.default_lease, capped by hloom_lock.max_lease with a notice. owner: a token of the caller''s own makes a retry idempotent. Outlives the transaction. Errors: 22004, 22023, 25006, 55000, 55006, LL003';

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
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_acquire(text, text, interval, interval, hloom_retry_policy, boolean, text, text, uuid, text) IS
'takes a lease as hloom_try_acquire(), but raises 55P03 when the key stays busy. Not supported by this version: 0A000';

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
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON PROCEDURE hloom_acquire_wait(text, text, uuid, bigint, timestamptz, interval, interval, hloom_retry_policy, text, text) IS
'takes a lease, waiting outside of any transaction and snapshot. Not supported by this version: 0A000';

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
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_guard(text, text, uuid) IS
'makes the transaction fail to commit unless the lease is held then. Not supported by this version: 0A000';

CREATE FUNCTION hloom_guard(namespace pg_catalog.text, key pg_catalog.text, owner pg_catalog.text) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_guard(text, text, text) IS
'makes the transaction fail to commit unless the lease is held then. Not supported by this version: 0A000; owner as text, 22P02 when it is no uuid';

CREATE FUNCTION hloom_guard(handle hloom_handle) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_guard(hloom_handle) IS
'makes the transaction fail to commit unless the lease of the handle is held then. Not supported by this version: 0A000';

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
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_execute_with_lock(text, text, text, text[], interval, interval, hloom_retry_policy, boolean, text, text, uuid, text) IS
'runs an action under a lease and returns its row count. Not supported by this version: 0A000';

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
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_query_with_lock(text, text, text, text[], interval, interval, hloom_retry_policy, boolean, text, text, uuid, text) IS
'runs a query under a lease and returns its rows. Not supported by this version: 0A000';

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
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_query_with_lock_json(text, text, text, text[], interval, interval, hloom_retry_policy, boolean, text, text, uuid, text) IS
'runs a query under a lease and returns its rows as jsonb. Not supported by this version: 0A000';

CREATE FUNCTION hloom_is_coordinated(namespace pg_catalog.text) RETURNS pg_catalog.bool
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_is_coordinated(text) IS
'whether locks of the namespace are coordinated, or disabled. Not supported by this version: 0A000';

CREATE FUNCTION hloom_release_session() RETURNS pg_catalog.int8
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_release_session() IS
'gives back the leases of this session and returns how many. Not supported by this version: 0A000';

CREATE FUNCTION hloom_key_from_sensitive(value pg_catalog.text, secret pg_catalog.bytea DEFAULT NULL) RETURNS pg_catalog.text
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_key_from_sensitive(text, bytea) IS
'a lock key that does not tell its source. Not supported by this version: 0A000';

-- Retry policies ------------------------------------------------------------------------------

CREATE FUNCTION hloom_retry_immediate(retries pg_catalog.int4) RETURNS hloom_retry_policy
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_retry_immediate(integer) IS
'retries without a delay. Not supported by this version: 0A000';

CREATE FUNCTION hloom_retry_interval(retries pg_catalog.int4, delay pg_catalog.interval) RETURNS hloom_retry_policy
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_retry_interval(integer, interval) IS
'retries after equal delays. Not supported by this version: 0A000';

CREATE FUNCTION hloom_retry_linear(retries pg_catalog.int4, step pg_catalog.interval) RETURNS hloom_retry_policy
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_retry_linear(integer, interval) IS
'retries after delays that grow by a step. Not supported by this version: 0A000';

CREATE FUNCTION hloom_retry_exponential(retries pg_catalog.int4, min pg_catalog.interval, max pg_catalog.interval, factor pg_catalog.float8 DEFAULT 2) RETURNS hloom_retry_policy
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_retry_exponential(integer, interval, interval, double precision) IS
'retries after delays that grow by a factor. Not supported by this version: 0A000';

CREATE FUNCTION hloom_retry_with_jitter(policy hloom_retry_policy, jitter pg_catalog.interval) RETURNS hloom_retry_policy
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_retry_with_jitter(hloom_retry_policy, interval) IS
'the policy with a random addition to each delay. Not supported by this version: 0A000';

CREATE FUNCTION hloom_retry_delay(policy hloom_retry_policy, n pg_catalog.int4) RETURNS pg_catalog.interval
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_retry_delay(hloom_retry_policy, integer) IS
'the delay before retry n, without jitter. Not supported by this version: 0A000';

CREATE FUNCTION hloom_retry_max_total_delay(policy hloom_retry_policy) RETURNS pg_catalog.interval
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_retry_max_total_delay(hloom_retry_policy) IS
'the longest time the policy waits in all. Not supported by this version: 0A000';

CREATE FUNCTION hloom_retry_describe(policy hloom_retry_policy) RETURNS pg_catalog.text
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'hloom_sql_not_built';

COMMENT ON FUNCTION hloom_retry_describe(hloom_retry_policy) IS
'the policy in words. Not supported by this version: 0A000';
