SELECT owner FROM hloom_acquire('bench', 'crowd', retry => hloom_retry_interval(10, '1 min')) \gset
SELECT pg_sleep(0.001);
SELECT hloom_release('bench', 'crowd', :owner::uuid);
