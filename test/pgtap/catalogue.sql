-- The shape of the catalogue, as rules: api.out of the regress tests shows what there is, this says
-- what must hold for whatever will be added.
BEGIN;
SELECT no_plan();

CREATE TEMP VIEW member AS
SELECT d.classid, d.objid, pg_identify_object(d.classid, d.objid, 0)::text AS identity
FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass
	AND d.refobjid = e.oid
WHERE e.extname = 'hloom_lock' AND d.deptype = 'e';
CREATE TEMP VIEW func AS
SELECT p.*, p.oid::regprocedure::text AS signature, obj_description(p.oid, 'pg_proc') AS comment
FROM pg_proc p JOIN member m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid;

SELECT has_extension('hloom_lock');
SELECT has_table('hloom_leases');
SELECT has_type('hloom_handle');
SELECT has_type('hloom_retry_policy');
SELECT cmp_ok((SELECT count(*) FROM func), '>', 30::bigint, 'the functions are found');

-- Names.
SELECT is_empty($$SELECT signature FROM func WHERE proname !~ '^hloom_'$$,
	'every function starts with hloom_');
SELECT is_empty($$SELECT relname FROM pg_class c JOIN member m ON m.classid = 'pg_class'::regclass
	AND m.objid = c.oid
	WHERE relname !~ '^hloom_'$$, 'every relation does');
SELECT is_empty($$SELECT typname FROM pg_type t JOIN member m ON m.classid = 'pg_type'::regclass
	AND m.objid = t.oid
	WHERE typname !~ '^_?hloom_'$$, 'every type does');
SELECT is_empty($$SELECT amname FROM pg_am a JOIN member m ON m.classid = 'pg_am'::regclass
	AND m.objid = a.oid
	WHERE amname !~ '^hloom_'$$, 'every access method does');
SELECT is_empty($$SELECT identity FROM member WHERE classid NOT IN
	('pg_proc'::regclass, 'pg_class'::regclass, 'pg_type'::regclass, 'pg_am'::regclass)$$,
		'there are no other objects');
SELECT is_empty($$SELECT m.identity FROM member m
	LEFT JOIN pg_proc p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
	LEFT JOIN pg_class c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid
	LEFT JOIN pg_type t ON m.classid = 'pg_type'::regclass AND t.oid = m.objid
	WHERE COALESCE(p.pronamespace, c.relnamespace, t.typnamespace)
		<> (SELECT extnamespace FROM pg_extension WHERE extname = 'hloom_lock')$$,
			'all are in the schema of the extension');
SELECT is((SELECT extrelocatable FROM pg_extension WHERE extname = 'hloom_lock'), false,
	'which stays where it is');

-- Comments.
SELECT is_empty($$SELECT signature FROM func WHERE COALESCE(comment, '') = ''$$,
	'every function has a comment');
SELECT is_empty($$SELECT signature FROM func WHERE comment ~ '[.\s]$'$$,
	'which does not end in a full stop');
SELECT is_empty($$SELECT signature FROM func WHERE comment ~ 'Not supported by this version'
	OR prosrc = 'hloom_sql_not_built'$$,
	'everything declared is built');
SELECT is_empty($$SELECT relname FROM pg_class c JOIN member m ON m.classid = 'pg_class'::regclass
	AND m.objid = c.oid WHERE relkind = 'r' AND obj_description(c.oid, 'pg_class') IS NULL$$,
	'every table has a comment');
SELECT is_empty($$SELECT attrelid::regclass, attname FROM pg_attribute
	JOIN member m ON m.classid = 'pg_class'::regclass AND m.objid = attrelid
	JOIN pg_class c ON c.oid = attrelid AND relkind = 'r'
	WHERE attnum > 0 AND NOT attisdropped AND col_description(attrelid, attnum) IS NULL$$,
	'each of their columns has');
SELECT is_empty($$SELECT tgname FROM pg_trigger t
	JOIN member m ON m.classid = 'pg_class'::regclass AND m.objid = tgrelid
	WHERE NOT tgisinternal AND obj_description(t.oid, 'pg_trigger') IS NULL$$,
	'every trigger has');
SELECT is_empty($$SELECT c.oid::regclass, attname
	FROM pg_class c JOIN member m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid
	LEFT JOIN pg_attribute a ON attrelid = c.oid AND attnum > 0 AND NOT attisdropped
		AND col_description(attrelid, attnum) IS NULL
	WHERE relkind = 'v' AND (attname IS NOT NULL OR obj_description(c.oid, 'pg_class') IS NULL)$$,
	'each view and each of its columns has');
SELECT is_empty($$SELECT typname FROM pg_type t
	WHERE typname IN ('hloom_handle', 'hloom_retry_policy') AND obj_description(oid, 'pg_type') IS NULL$$, 'both types have');

-- Marks.
SELECT set_eq($$SELECT proname::text FROM func WHERE prosecdef$$,
	ARRAY['hloom_configure', 'hloom_unconfigure'], 'SECURITY DEFINER is who changes options');
SELECT is_empty($$SELECT signature FROM func
	WHERE prosecdef <> (COALESCE(proconfig, '{}') = '{"search_path=pg_catalog, pg_temp"}')$$,
	'with a search_path of its own, and nobody else has one');
SELECT is_empty($$SELECT signature FROM func WHERE proleakproof$$, 'none is LEAKPROOF');
SELECT set_eq($$SELECT proname::text FROM func WHERE proisstrict$$,
	ARRAY['hloom_lease_handler', 'hloom_blocking_pids'],
	'none that takes a key is STRICT: a NULL key is an error and not a NULL lock');
SELECT is_empty($$SELECT signature FROM func WHERE prorettype <> 'table_am_handler'::regtype AND NOT
	CASE WHEN proname ~ '^hloom_(retry_|key_from_sensitive)'
		THEN provolatile = 'i' AND proparallel = 's'
		ELSE provolatile = 'v' AND proparallel = 'u' END$$,
	'calls are VOLATILE and PARALLEL UNSAFE, the other helpers IMMUTABLE and PARALLEL SAFE');
SELECT is_empty($$SELECT signature FROM func WHERE prolang <> (SELECT oid FROM pg_language
	WHERE lanname = 'c')$$, 'all are in C');
SELECT is_empty($$SELECT signature FROM func WHERE provariadic <> 0 OR prokind NOT IN ('f', 'p')$$,
	'none is variadic, an aggregate or a window function');
SELECT set_eq($$SELECT proname::text FROM func WHERE NOT EXISTS (SELECT
		FROM aclexplode(COALESCE(proacl, acldefault('f', proowner))) WHERE grantee = 0)$$,
	ARRAY['hloom_configure', 'hloom_unconfigure', 'hloom_force_release', 'hloom_namespaces_changed',
		'hloom_health',
		'hloom_metrics', 'hloom_metrics_reset', 'hloom_openmetrics', 'hloom_reap'],
	'everybody may call each but those that administer or watch the server');
SELECT set_eq($$SELECT proname::text FROM func, aclexplode(proacl)
	WHERE grantee = 'pg_monitor'::regrole$$, ARRAY['hloom_health', 'hloom_metrics', 'hloom_openmetrics'],
	'which pg_monitor may');
SELECT is_empty($$SELECT signature FROM func WHERE prorettype = 'hloom_handle'::regtype
	AND (NOT proretset OR prorows <> 1)$$,
	'what returns a handle returns one row or none');

-- Arguments.  Those of a call come first, in one order, and are given by these names everywhere.
SELECT is_empty($$SELECT signature FROM func WHERE pronargs > 0 AND proargnames IS NULL
	AND prorettype <> 'table_am_handler'::regtype$$,
	'every argument has a name');
SELECT is_empty($$SELECT signature FROM func WHERE 'key' = ANY (proargnames[1:pronargs])
	AND proargnames[1:2] <> '{namespace,key}'$$,
	'namespace and key come first');
SELECT is_empty($$SELECT signature FROM func f, unnest(proargnames) WITH ORDINALITY AS a(name, n)
	WHERE proallargtypes IS NULL AND (name, proargtypes[n - 1]::regtype::text) NOT IN (
		('namespace', 'text'), ('key', 'text'), ('owner', 'uuid'), ('owner', 'text'),
		('handle', 'hloom_handle'), ('lease', 'interval'), ('max_wait', 'interval'),
		('retry', 'hloom_retry_policy'), ('auto_extend', 'boolean'), ('on_lost', 'text'),
		('scope', 'text'), ('note', 'text'), ('action', 'text'), ('args', 'text[]'),
		('value', 'text'), ('secret', 'bytea'), ('retries', 'integer'), ('delay', 'interval'),
		('step', 'interval'), ('min', 'interval'), ('max', 'interval'),
		('factor', 'double precision'), ('policy', 'hloom_retry_policy'), ('jitter', 'interval'),
		('n', 'integer'), ('enabled', 'boolean'), ('provider', 'text'),
		('default_lease', 'interval'), ('max_lease', 'interval'), ('max_hold', 'interval'),
		('detect_reentrancy', 'boolean'), ('max_key_length', 'integer'), ('role', 'text'),
		('reset', 'text[]'), ('reason', 'text'), ('pid', 'integer'))$$,
	'one name means one thing');
SELECT is_empty($$SELECT proname FROM func WHERE 'owner' = ANY (proargnames)
	AND proargnames[3] = 'owner' AND prokind = 'f'
	GROUP BY proname HAVING array_agg(proargtypes[2]::regtype::text ORDER BY 1) <> '{uuid,text}'
		AND array_agg(proargtypes[2]::regtype::text ORDER BY 1) <> '{text,uuid}'$$,
			'who takes an owner takes it as uuid and as text');
SELECT set_eq($$SELECT proname::text FROM func WHERE proargtypes[0] = 'hloom_handle'::regtype$$,
	ARRAY['hloom_release', 'hloom_extend', 'hloom_is_held', 'hloom_remaining', 'hloom_guard'],
		'and in a handle');
SELECT is_empty($$SELECT signature FROM func
	WHERE proname IN ('hloom_try_acquire', 'hloom_acquire') AND (pronargs <> 10 OR pronargdefaults <> 8)$$, 'all options of taking a lease have a default');

-- The handle: what a client may keep.
SELECT is((SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', '
	ORDER BY attnum) FROM pg_attribute
	WHERE attrelid = 'hloom_handle'::regclass AND attnum > 0),
	'namespace text, key text, owner uuid, fence bigint, lease interval, '
	'lease_end timestamp with time zone, is_coordinated boolean',
	'hloom_handle has its columns');
SELECT is((SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', '
	ORDER BY attnum) FROM pg_attribute
	WHERE attrelid = 'hloom_retry_policy'::regclass AND attnum > 0),
	'kind text, retries integer, delay interval, max_delay interval, '
	'factor double precision, jitter interval',
	'hloom_retry_policy has its columns');

-- The table.
SELECT columns_are('hloom_leases', ARRAY['namespace', 'key', 'owner', 'owner_tag', 'fence', 'mode',
	'granted_at', 'expires_at', 'lease', 'holder_role', 'holder_pid', 'application_name',
	'client_addr', 'scope', 'auto_extend', 'note']);
SELECT is((SELECT amname FROM pg_am JOIN pg_class c ON c.relam = pg_am.oid
	WHERE c.oid = 'hloom_leases'::regclass), 'hloom_lease'::name,
	'it has its access method');
SELECT is((SELECT reltoastrelid FROM pg_class WHERE oid = 'hloom_leases'::regclass), 0::oid,
	'and no TOAST table');
SELECT hasnt_pk('hloom_leases');
SELECT is((SELECT count(*) FROM pg_index WHERE indrelid = 'hloom_leases'::regclass), 0::bigint,
	'it has no index');
SELECT is_empty($$SELECT attname FROM pg_attribute WHERE attrelid = 'hloom_leases'::regclass
	AND attnum > 0
	AND attnotnull = (attname IN ('owner', 'client_addr', 'note'))$$,
		'owner, client_addr and note may be NULL, nothing else');
SELECT table_privs_are('hloom_leases', 'pg_monitor', ARRAY['SELECT']);
SELECT is_empty($$SELECT privilege_type FROM pg_class, aclexplode(relacl)
	WHERE oid = 'hloom_leases'::regclass
	AND grantee NOT IN (relowner, 'pg_monitor'::regrole)$$, 'nobody else has a privilege of it');

-- The views for people, which choose the rows by who asks.
SELECT columns_are('hloom_locks', ARRAY['namespace', 'key', 'holder', 'application', 'state',
	'held_for', 'remaining', 'freed_by', 'fence', 'waiters', 'holder_pid', 'note']);
SELECT columns_are('hloom_waiters', ARRAY['pid', 'role', 'application_name', 'namespace', 'key',
	'waiting_since', 'attempts', 'position', 'gives_up_at', 'holder_pid', 'holder_role',
	'holder_until']);
SELECT set_eq($$SELECT relname || ' ' || privilege_type FROM pg_class, aclexplode(relacl)
	WHERE relnamespace = (SELECT extnamespace FROM pg_extension WHERE extname = 'hloom_lock')
	AND relname ~ '^hloom_' AND grantee = 0$$,
	ARRAY['hloom_locks SELECT', 'hloom_waiters SELECT', 'hloom_activities SELECT',
		'hloom_losses SELECT'],
	'everybody may read these');
SELECT columns_are('hloom_activities', ARRAY['started_at', 'duration_ms', 'name', 'namespace', 'key',
	'key_cut', 'acquired', 'wait_ms', 'hold_ms', 'trace_id', 'span_id', 'parent_span_id', 'sampled',
	'pid', 'role']);

-- Options of namespaces: each is an argument of hloom_configure, in the order of the columns, and a
-- line of hloom_describe.
SELECT is((SELECT proargnames::text[] FROM func WHERE proname = 'hloom_configure'),
	(SELECT array_agg(attname::text ORDER BY attnum) || '{reset}' FROM pg_attribute
		WHERE attrelid = 'hloom_namespaces'::regclass AND attnum > 0),
	'hloom_configure takes the columns of hloom_namespaces');
SELECT is_empty($$SELECT attname::text FROM pg_attribute
	WHERE attrelid = 'hloom_namespaces'::regclass AND attnum > 0
	EXCEPT SELECT part FROM hloom_describe('catalogue')$$, 'hloom_describe tells of each');
SELECT col_is_pk('hloom_namespaces', 'namespace');
SELECT table_privs_are('hloom_namespaces', 'pg_monitor', ARRAY['SELECT']);
SELECT is_empty($$SELECT privilege_type FROM pg_class, aclexplode(relacl)
	WHERE oid = 'hloom_namespaces'::regclass
	AND grantee NOT IN (relowner, 'pg_monitor'::regrole)$$, 'nobody else has a privilege of it');
SELECT is((SELECT extconfig::regclass[] FROM pg_extension WHERE extname = 'hloom_lock'),
	'{hloom_namespaces}', 'pg_dump carries it, and no other table');
SELECT is_empty($$SELECT tgname FROM pg_trigger WHERE tgrelid = 'hloom_namespaces'::regclass
	AND tgenabled <> 'A'$$, 'its triggers fire whatever session_replication_role says');

-- Settings.
SELECT set_eq($$SELECT name FROM pg_settings WHERE name ~ '^hloom_lock\.'$$,
	ARRAY['hloom_lock.activity_history', 'hloom_lock.traceparent',
		'hloom_lock.auto_extend', 'hloom_lock.default_lease', 'hloom_lock.detect_reentrancy',
		'hloom_lock.enabled', 'hloom_lock.max_hold', 'hloom_lock.max_key_length', 'hloom_lock.max_tracked_leases', 'hloom_lock.memory_leases',
		'hloom_lock.metrics_namespaces',
		'hloom_lock.notify_lost', 'hloom_lock.reap_interval',
		'hloom_lock.max_lease', 'hloom_lock.provider', 'hloom_lock.retry_jitter',
		'hloom_lock.retry_limit', 'hloom_lock.retry_step', 'hloom_lock.strict_namespaces'],
		'the settings');
SELECT is_empty($$SELECT name FROM pg_settings WHERE name ~ '^hloom_lock\.'
	AND short_desc !~ '^[A-Z].*\.$'$$, 'each with a sentence');
SELECT is_empty($$SELECT name FROM pg_settings WHERE name ~ '^hloom_lock\.max_'
	AND context NOT IN ('superuser', 'postmaster')$$, 'limits are the superuser''s');

SELECT * FROM finish();
ROLLBACK;
