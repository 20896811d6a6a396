\set k random(1, 10000000)
SELECT owner, fence, lease_end FROM hloom_try_acquire('bench', :k, lease => '30 s', owner => :owner);
SELECT hloom_release('bench', :k, :owner::uuid);
