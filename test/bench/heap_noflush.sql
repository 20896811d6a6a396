\set k random(1, 10000000)
INSERT INTO heap_lease AS l VALUES (:k, :owner, clock_timestamp() + '30 s'::interval)
    ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at
    WHERE l.expires_at < clock_timestamp() RETURNING *;
DELETE FROM heap_lease USING (SELECT set_config('synchronous_commit', 'off', true) AS c) s
    WHERE key = :k AND owner = :owner AND s.c = 'off';
