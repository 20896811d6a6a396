\echo Use "CREATE EXTENSION hloom_test" to load this file. \quit

CREATE FUNCTION hloom_test_set(point text, action text) RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'hloom_test_set';

COMMENT ON FUNCTION hloom_test_set(text, text) IS
'what happens at a point (flush, granted, split, grow) in this session: nothing, skip (the point answers true), error, crash, stop (until SIGCONT)';

CREATE FUNCTION hloom_test_hits(point text) RETURNS bigint
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'hloom_test_hits';

COMMENT ON FUNCTION hloom_test_hits(text) IS
'how often this session passed the point';
