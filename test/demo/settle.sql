-- Settles one invoice, :invoice, as any autocommit client would: skip it if another is at it.

SELECT owner, owner IS NOT NULL AS taken
  FROM (SELECT) AS one_row
  LEFT JOIN hloom_try_acquire('billing', 'invoice:' || :'invoice', lease => '30 s') ON true
\gset

\if :taken
    SELECT CASE WHEN settled THEN 'settled before' ELSE 'paid' END AS outcome, NOT settled AS due
      FROM invoice WHERE number = :'invoice'
    \gset
    \if :due
        SELECT pg_sleep(0.02) \g /dev/null -- the bank takes its time
        INSERT INTO payment (invoice, amount, currency)
            SELECT number, amount, currency FROM invoice WHERE number = :'invoice';
        UPDATE invoice SET settled = true WHERE number = :'invoice';
    \endif
    SELECT hloom_release('billing', 'invoice:' || :'invoice', :'owner') AS released \gset
    \if :released
    \else
        \set outcome 'lease lost'
    \endif
\else
    \set outcome 'refused'
\endif

INSERT INTO visit (invoice, outcome) VALUES (:'invoice', :'outcome');
