\set ON_ERROR_STOP on
SET client_min_messages = warning;

CREATE EXTENSION hloom_lock;
\o /dev/null
SELECT hloom_configure('memory', provider => 'memory');
\o

-- What people write by hand, at its best: one index, room on every page, an eager autovacuum.
CREATE TABLE heap_lease (
    key        text PRIMARY KEY,
    owner      uuid NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0);

-- Microseconds per acquire and release, without protocol and commit.
CREATE FUNCTION pair_cost(pairs integer) RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE
    began timestamptz := clock_timestamp();
    done  bigint;
BEGIN
    SELECT count(*) FILTER (WHERE hloom_release('bench', h.key, h.owner)) INTO done
      FROM generate_series(1, pairs) AS g,
           LATERAL hloom_try_acquire('bench', 'p' || g, lease => '30 s',
                                     owner => '6f0e4a52-7d1b-4c3a-9a55-0d8a3c1e2b47') AS h;
    IF done <> pairs THEN
        RAISE EXCEPTION '% of % pairs done', done, pairs;
    END IF;
    RETURN extract(epoch FROM clock_timestamp() - began) * 1e6 / pairs;
END $$;

-- When each turn of those who wait for each other began, and when it was about to end.
CREATE UNLOGGED TABLE turns (client integer, got timestamptz, gave timestamptz);

-- How people wait for a hand-written lease: they look every 50 ms.
CREATE PROCEDURE poll_take(wanted text, client integer) LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        INSERT INTO heap_lease AS l
            VALUES (wanted, lpad(client::text, 32, '0')::uuid, clock_timestamp() + '30 s'::interval)
            ON CONFLICT (key) DO UPDATE
                SET owner = excluded.owner, expires_at = excluded.expires_at
                WHERE l.expires_at < clock_timestamp();
        EXIT WHEN FOUND;
        COMMIT;
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;
