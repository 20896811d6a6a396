\set hold random(100, 150)
CALL poll_take('turn', :client_id);
SELECT clock_timestamp() AS got \gset
\sleep :hold ms
WITH gone AS (DELETE FROM heap_lease WHERE key = 'turn' RETURNING 1)
    SELECT clock_timestamp() AS gave, count(*) AS done FROM gone \gset
INSERT INTO turns VALUES (:client_id, :got::timestamptz, :gave::timestamptz);
\sleep 55 ms
