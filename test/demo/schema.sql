-- Two copies of the same books: one for the race under the lock, one for the race without.
\set ON_ERROR_STOP on
SET client_min_messages = warning;

CREATE EXTENSION IF NOT EXISTS hloom_lock;

CREATE SCHEMA locked;
CREATE SCHEMA unlocked;

CREATE TABLE locked.invoice (
    number   text PRIMARY KEY,
    customer text NOT NULL,
    amount   numeric(12,2) NOT NULL,
    currency text NOT NULL,
    due      date NOT NULL,
    settled  boolean NOT NULL DEFAULT false
);

-- No unique constraint on invoice: nothing but the lock stands against a second payment.
CREATE TABLE locked.payment (
    invoice  text NOT NULL,
    amount   numeric(12,2) NOT NULL,
    currency text NOT NULL,
    client   text NOT NULL DEFAULT current_setting('application_name'),
    paid_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE locked.visit (
    client  text NOT NULL DEFAULT current_setting('application_name'),
    invoice text NOT NULL,
    outcome text NOT NULL
);

\copy locked.invoice (number, customer, amount, currency, due) from 'invoices.csv' csv header

CREATE TABLE unlocked.invoice (LIKE locked.invoice INCLUDING ALL);
CREATE TABLE unlocked.payment (LIKE locked.payment INCLUDING ALL);
INSERT INTO unlocked.invoice SELECT * FROM locked.invoice;
