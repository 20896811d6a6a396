-- Who sees what: the owner token is a secret of whoever took the lease.
CREATE SCHEMA privileges;
SET search_path = privileges, public;
TRUNCATE hloom_leases;
CREATE ROLE regress_hloom_worker;
CREATE ROLE regress_hloom_other;
CREATE ROLE regress_hloom_watcher;
GRANT pg_monitor TO regress_hloom_watcher;
GRANT USAGE ON SCHEMA hl TO PUBLIC;

-- Anybody may lock; nobody but the watchers may read the table.
SELECT key FROM hloom_try_acquire('privileges', 'super', owner => hl.owner(1));
SET ROLE regress_hloom_worker;
SELECT key FROM hloom_try_acquire('privileges', 'worker', owner => hl.owner(2));
SELECT hloom_is_held('privileges', 'worker', hl.owner(2)) AS held,
	hloom_extend('privileges', 'worker', hl.owner(2)) AS extended;
SELECT hl.error('SELECT * FROM hloom_leases');
SELECT hl.error('SELECT key FROM hloom_leases');
SELECT hl.state('TRUNCATE hloom_leases') AS truncate, hl.state('LOCK TABLE hloom_leases') AS lock,
	hl.state($$INSERT INTO hloom_leases (key) VALUES ('a')$$) AS insert,
		hl.state('DELETE FROM hloom_leases') AS delete,
	hl.state('UPDATE hloom_leases SET note = NULL') AS update,
		hl.state('DROP EXTENSION hloom_lock') AS drop,
	hl.state('ALTER TABLE hloom_leases ADD COLUMN a int') AS alter;
SELECT hl.state('SET hloom_lock.max_lease = ''1h''') AS max_lease,
	hl.state('SET hloom_lock.max_key_length = 1024') AS max_key_length,
	hl.state('SET hloom_lock.default_lease = ''20s''') AS default_lease;

-- The token is the right to a lease, whoever shows it: a pool's connections may have roles of their
-- own.
SET ROLE regress_hloom_other;
SELECT hloom_is_held('privileges', 'worker', hl.owner(2)) AS held,
	hloom_extend('privileges', 'worker', hl.owner(2)) AS extended;
SELECT key FROM hloom_try_acquire('privileges', 'other', owner => hl.owner(3));

-- A watcher sees every lease and no owner.
SET ROLE regress_hloom_watcher;
SELECT key, owner, owner_tag, fence > 0 AS fence, expires_at > now() AS expires FROM hloom_leases
	ORDER BY key;
SELECT key, holder_role FROM hloom_leases WHERE key <> 'super' ORDER BY key;
SELECT count(owner), count(*) FROM hloom_leases;
-- However it asks.
SELECT key FROM hloom_leases WHERE owner = hl.owner(2);
SELECT count(*) FROM hloom_leases AS l WHERE l::text LIKE '%' || hl.owner(2) || '%'
	OR row_to_json(l)::text LIKE '%' || hl.owner(2) || '%';
COPY (SELECT owner FROM hloom_leases) TO STDOUT;
SELECT hl.state('TRUNCATE hloom_leases') AS truncate,
	hl.state('DELETE FROM hloom_leases') AS delete;
-- Nor by what ANALYZE, which runs as the table's owner, keeps of the table.
RESET ROLE;
ANALYZE hloom_leases;
SET ROLE regress_hloom_watcher;
SELECT attname, null_frac, most_common_vals IS NULL AND histogram_bounds IS NULL AS nothing_kept
FROM pg_stats WHERE tablename = 'hloom_leases' AND attname = 'owner';
-- Its own lease it knows.
SELECT key FROM hloom_try_acquire('privileges', 'watcher', owner => hl.owner(4));
SELECT key, owner FROM hloom_leases ORDER BY key;

-- The role that took a lease sees its owner, where it may read at all.
RESET ROLE;
GRANT SELECT ON hloom_leases TO regress_hloom_worker;
SET ROLE regress_hloom_worker;
SELECT key, owner FROM hloom_leases ORDER BY key;
-- Not the members of the role, nor the roles it is a member of.
RESET ROLE;
GRANT regress_hloom_worker TO regress_hloom_other;
SET ROLE regress_hloom_other;
SELECT key, owner IS NULL AS masked FROM hloom_leases ORDER BY key;
RESET ROLE;
REVOKE regress_hloom_worker FROM regress_hloom_other;

-- A superuser sees all.
SELECT key, owner, holder_role = current_user::regrole AS mine FROM hloom_leases ORDER BY key;

-- Who reads counts, not who asks: a view shows what its owner may read, but masks for the reader.
CREATE VIEW shown AS SELECT key, owner FROM hloom_leases;
CREATE FUNCTION shown_as_definer() RETURNS TABLE (key text, owner uuid) SECURITY DEFINER
LANGUAGE sql AS 'SELECT key, owner FROM public.hloom_leases';
GRANT USAGE ON SCHEMA privileges TO PUBLIC;
GRANT SELECT ON shown TO PUBLIC;
SET ROLE regress_hloom_watcher;
SELECT key, owner IS NULL AS masked FROM shown ORDER BY key;
-- A SECURITY DEFINER function is its owner's to answer for.
SELECT count(owner) FROM shown_as_definer();
RESET ROLE;

-- The tag tells leases of one owner apart from another's without telling the owner.
SELECT count(*), bool_and(owner_tag = left(encode(sha256(owner::text::bytea), 'hex'), 8)) AS tag
	FROM hloom_leases;

-- A lease whose role is gone is shown all the same.
SELECT count(*) FROM hloom_leases WHERE key = 'worker';
REVOKE SELECT ON hloom_leases FROM regress_hloom_worker;
DROP ROLE regress_hloom_worker;
SELECT key, owner, holder_role::text ~ '^\d+$' AS role_is_gone FROM hloom_leases
	WHERE key = 'worker';

TRUNCATE hloom_leases;
REVOKE USAGE ON SCHEMA hl FROM PUBLIC;
SET client_min_messages = warning;
DROP SCHEMA privileges CASCADE;
DROP ROLE regress_hloom_other;
DROP ROLE regress_hloom_watcher;
