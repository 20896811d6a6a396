\set k random(1, 10000000)
SELECT fence FROM hloom_try_acquire('memory', :k, lease => '30 s', owner => :owner);
SELECT hloom_release('memory', :k, :owner::uuid);
