SELECT owner, fence, lease_end FROM hloom_try_acquire('bench', 'held', lease => '30 s', owner => :owner);
