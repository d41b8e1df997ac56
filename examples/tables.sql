-- The shop's own tables. No unique index on payment and entry: the library alone makes each payment take effect once.
CREATE TABLE IF NOT EXISTS account (id text PRIMARY KEY, balance numeric NOT NULL CHECK (balance >= 0));
CREATE TABLE IF NOT EXISTS payment (id text NOT NULL, account text NOT NULL, amount numeric NOT NULL);
CREATE TABLE IF NOT EXISTS entry (payment_id text NOT NULL, account text NOT NULL, amount numeric NOT NULL);
INSERT INTO account VALUES ('alice', 100), ('bob', 50) ON CONFLICT DO NOTHING;
