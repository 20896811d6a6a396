\set k :client_id * 100 + random(1, 8)
UPDATE heap_lease SET expires_at = clock_timestamp() + '10 min'::interval
    WHERE key = :k AND owner = :owner AND expires_at > clock_timestamp();
