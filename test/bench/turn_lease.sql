SELECT clock_timestamp() AS got, owner FROM hloom_acquire('bench', 'turn', retry => hloom_retry_interval(10, '1 min')) \gset
\sleep 2 ms
SELECT clock_timestamp() AS gave, hloom_release('bench', 'turn', :owner::uuid) AS done \gset
INSERT INTO turns VALUES (:client_id, :got::timestamptz, :gave::timestamptz);
