BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SELECT set_config('idle_in_transaction_session_timeout', '10s', true),
       set_config('statement_timeout', '30s', true),
       set_config('lock_timeout', '5s', true),
       -- Whether a relay sleeps is of no interest after a crash, and its next read need not wait for the disk.
       set_config('synchronous_commit', 'off', true)
