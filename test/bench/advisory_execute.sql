\set k random(1, 10000000)
SELECT pg_try_advisory_lock(:k);
SELECT 1;
SELECT pg_advisory_unlock(:k);
