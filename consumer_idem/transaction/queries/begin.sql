BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SELECT set_config('idem.attempt', '{attempt}', true),
       set_config('lock_timeout', '{lock_timeout}', true),
       set_config('idle_in_transaction_session_timeout', '{idle_timeout}', true),
       set_config('statement_timeout', '{statement_timeout}', true)
