-- Every object of the extension, as users may rely on it: a change of any signature, mark,
-- privilege, comment, column or setting changes this file's output.
\pset format unaligned
\pset null '(null)'

-- Members.  Row types of tables and array types follow from these, and only some versions list
-- them.
SELECT pg_describe_object(d.classid, d.objid, 0) AS object
FROM pg_depend d
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
LEFT JOIN pg_type t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
LEFT JOIN pg_class c ON c.oid = t.typrelid
WHERE e.extname = 'hloom_lock' AND d.deptype = 'e' AND t.typcategory IS DISTINCT FROM 'A'
	AND COALESCE(c.relkind, 'c') = 'c'
ORDER BY pg_describe_object(d.classid, d.objid, 0) COLLATE "C";

SELECT extversion, extrelocatable, extconfig::regclass[], extcondition
FROM pg_extension WHERE extname = 'hloom_lock';

CREATE VIEW hl.functions AS
SELECT p.*
FROM pg_proc p
JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'hloom_lock';

-- Signatures.
SELECT proname || '(' || pg_get_function_arguments(oid) || ')' AS signature,
	COALESCE(pg_get_function_result(oid), '-') AS result
FROM hl.functions ORDER BY (proname || pg_get_function_arguments(oid)) COLLATE "C";

-- Marks.
SELECT oid::regprocedure AS function,
	CASE prokind WHEN 'f' THEN 'function' WHEN 'p' THEN 'procedure' ELSE prokind::text END AS kind,
	CASE provolatile WHEN 'v' THEN 'volatile'
		WHEN 's' THEN 'stable' ELSE 'immutable' END AS volatility,
	CASE proparallel WHEN 'u' THEN 'unsafe' WHEN 'r' THEN 'restricted' ELSE 'safe' END AS parallel,
	proisstrict AS strict, prosecdef AS definer, proleakproof AS leakproof, proretset AS set,
	prorows AS rows, procost AS cost, proconfig AS config, prosupport::oid <> 0 AS support,
	(SELECT lanname FROM pg_language l WHERE l.oid = prolang) AS language, prosrc AS symbol,
	proacl AS acl
FROM hl.functions ORDER BY (proname || pg_get_function_arguments(oid)) COLLATE "C";

-- Comments.
SELECT oid::regprocedure AS function, obj_description(oid, 'pg_proc') AS comment
FROM hl.functions ORDER BY (proname || pg_get_function_arguments(oid)) COLLATE "C";

-- Relations and composite types.
SELECT c.relname, c.relkind, c.relpersistence, am.amname, c.reloptions,
	(SELECT string_agg(grantee::regrole || ' ' || privilege_type
			|| CASE WHEN is_grantable THEN '*' ELSE '' END, ', ')
		FROM aclexplode(c.relacl) WHERE grantee <> c.relowner) AS granted,
	COALESCE(obj_description(c.oid, 'pg_class'), obj_description(c.reltype, 'pg_type')) AS comment
FROM pg_class c
LEFT JOIN pg_am am ON am.oid = c.relam
WHERE c.relname LIKE 'hloom%' ORDER BY c.relname COLLATE "C";

SELECT a.attrelid::regclass AS relation, a.attnum, a.attname,
	format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS not_null,
		a.atthasdef AS has_default,
	a.attacl AS acl, col_description(a.attrelid, a.attnum) AS comment
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relname LIKE 'hloom%' AND a.attnum > 0
ORDER BY c.relname COLLATE "C", a.attnum;

-- The table has nothing that would be a way round its access method.
SELECT (SELECT count(*) FROM pg_index WHERE indrelid = 'hloom_leases'::regclass) AS indexes,
	(SELECT count(*) FROM pg_constraint
		WHERE conrelid = 'hloom_leases'::regclass AND contype <> 'n') AS constraints,
	(SELECT count(*) FROM pg_trigger WHERE tgrelid = 'hloom_leases'::regclass) AS triggers,
	(SELECT reltoastrelid FROM pg_class WHERE oid = 'hloom_leases'::regclass) AS toast,
	(SELECT relreplident FROM pg_class WHERE oid = 'hloom_leases'::regclass) AS replica_identity;

SELECT tgrelid::regclass AS relation, tgname, tgfoid::regproc AS function, tgtype, tgenabled,
	obj_description(oid, 'pg_trigger') AS comment
FROM pg_trigger WHERE tgrelid::regclass::text LIKE 'hloom%' ORDER BY tgname COLLATE "C";

SELECT amname, amhandler, amtype, obj_description(oid, 'pg_am') AS comment
FROM pg_am WHERE amname LIKE 'hloom%' ORDER BY amname COLLATE "C";

-- Settings.
SELECT name, boot_val, unit, context, vartype, min_val, max_val, enumvals, category, short_desc,
	extra_desc
FROM pg_settings WHERE name LIKE 'hloom%' ORDER BY name COLLATE "C";

DROP VIEW hl.functions;
