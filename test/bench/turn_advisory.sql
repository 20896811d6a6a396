SELECT pg_advisory_lock(1), clock_timestamp() AS got \gset
\sleep 2 ms
SELECT clock_timestamp() AS gave, pg_advisory_unlock(1) AS done \gset
INSERT INTO turns VALUES (:client_id, :got::timestamptz, :gave::timestamptz);
