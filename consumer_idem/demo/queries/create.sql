CREATE SCHEMA {schema};
CREATE TABLE {schema}.account (id text PRIMARY KEY, balance numeric NOT NULL CHECK (balance >= 0)) WITH (fillfactor = 50);
-- No unique index here: a payment that is applied twice must be seen twice.
CREATE TABLE {schema}.payment (id text NOT NULL, account text NOT NULL, amount numeric NOT NULL);
CREATE TABLE {schema}.refusal (payment_id text NOT NULL);
