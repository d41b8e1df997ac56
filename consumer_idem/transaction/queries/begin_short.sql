BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SELECT set_config('lock_timeout', '5s', true),
       set_config('idle_in_transaction_session_timeout', '5s', true),
       set_config('statement_timeout', '10s', true)
