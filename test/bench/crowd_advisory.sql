SELECT pg_advisory_lock(2);
SELECT pg_sleep(0.001);
SELECT pg_advisory_unlock(2);
