-- One client walks all invoices in an order of its own and runs the file :job for each.
-- psql has no loop: it writes down its walk, \set and \i for each invoice, and reads it.
\set ON_ERROR_STOP on
\set QUIET on
\pset tuples_only on
\pset format unaligned

SELECT format(E'\\set invoice %s\n\\i %s', number, :'job')
  FROM invoice ORDER BY md5(number || current_setting('application_name'))
\g :walk
\i :walk
