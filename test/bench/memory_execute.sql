\set k random(1, 10000000)
SELECT hloom_execute_with_lock('memory', :k, 'SELECT 1');
