-- A count that a crash of the server forgets costs one attempt more, and waiting for its disk each message that fails.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SELECT set_config('lock_timeout', '5s', true),
       set_config('idle_in_transaction_session_timeout', '5s', true),
       set_config('statement_timeout', '10s', true),
       set_config('synchronous_commit', 'off', true)
