BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SELECT set_config('idle_in_transaction_session_timeout', '10s', true),
       set_config('statement_timeout', '30s', true),
       set_config('lock_timeout', '5s', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('jit', 'off', true)
