-- The same work without the lock: look, pay, mark. Every statement is right; the three are not.

SELECT NOT settled AS due FROM invoice WHERE number = :'invoice' \gset
\if :due
    SELECT pg_sleep(0.02) \g /dev/null -- the bank takes its time
    INSERT INTO payment (invoice, amount, currency)
        SELECT number, amount, currency FROM invoice WHERE number = :'invoice';
    UPDATE invoice SET settled = true WHERE number = :'invoice';
\endif
