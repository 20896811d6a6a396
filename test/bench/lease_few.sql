\set k :client_id * 100 + random(1, 12)
SELECT * FROM hloom_try_acquire('bench', 'k' || :k, lease => '30 s', owner => :owner);
SELECT hloom_release('bench', 'k' || :k, :owner::uuid);
