BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY;
SELECT set_config('idle_in_transaction_session_timeout', '10s', true),
       set_config('statement_timeout', '30s', true),
       -- The statistics of a table that is full now and empty a second later mislead the planner: along the primary key, always.
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('jit', 'off', true)
