\set k random(1, 10000000)
SELECT * FROM hloom_try_acquire('bench', 'k' || :k, lease => '30 s', owner => :owner);
SELECT hloom_release('bench', 'k' || :k, :owner::uuid);
