\set k random(1, 10000000)
SELECT owner FROM heap_lease WHERE key = :k::text AND expires_at > clock_timestamp();
INSERT INTO heap_lease AS l VALUES (:k, :owner, clock_timestamp() + '30 s'::interval)
    ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at
    WHERE l.expires_at < clock_timestamp() RETURNING *;
DELETE FROM heap_lease WHERE key = :k AND owner = :owner;
