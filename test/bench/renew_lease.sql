\set k :client_id * 100 + random(1, 8)
SELECT hloom_extend('steady', :k, :owner::uuid, '10 min');
