-- What every other file needs: the extension, and helpers in a schema of their own.
CREATE EXTENSION hloom_lock;
CREATE SCHEMA hl;

-- Runs a statement that must fail and tells its SQLSTATE with the whole text, which is part of the
-- contract.  VERBOSITY verbose would show source locations, which are not.
CREATE FUNCTION hl.error(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
BEGIN
	EXECUTE statement;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN SQLSTATE || ': ' || SQLERRM
		|| CASE WHEN detail <> '' THEN E'\nDETAIL: ' || detail ELSE '' END
		|| CASE WHEN hint <> '' THEN E'\nHINT: ' || hint ELSE '' END;
END $$;

-- Only the SQLSTATE, where the text has been shown already.
CREATE FUNCTION hl.state(statement text) RETURNS text LANGUAGE sql AS $$
	SELECT CASE error WHEN 'no error' THEN error ELSE left(error, 5) END
		FROM hl.error(statement) AS error
$$;

-- An owner token that is told apart at sight and is nobody's secret.
CREATE FUNCTION hl.owner(n int) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
	SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid
$$;

-- Returns when the key has no lease any more: waiting for a state, not for a time.
CREATE FUNCTION hl.wait_until_free(ns text, lock_key text) RETURNS void LANGUAGE plpgsql
SET statement_timeout = '60s' AS $$
BEGIN
	WHILE EXISTS (SELECT FROM hloom_leases WHERE namespace = ns AND key = lock_key) LOOP
		PERFORM pg_sleep(0.005);
	END LOOP;
END $$;
