-- A client that is stopped between two parts of one statement leaves its transaction "active" and waiting to be read from:
-- neither idle_in_transaction_session_timeout nor statement_timeout ends that, and its claims would block their keys for ever.
SELECT pg_terminate_backend(activity.pid) AS ended
FROM pg_stat_activity AS activity
WHERE activity.datname = current_database() AND activity.pid <> pg_backend_pid()
  AND activity.state = 'active' AND activity.wait_event_type = 'Client' AND activity.wait_event = 'ClientRead'
  AND activity.state_change < clock_timestamp() - $1::interval
  AND EXISTS (SELECT FROM pg_locks AS held
              WHERE held.pid = activity.pid AND held.relation = '{schema}.inbox'::regclass AND held.mode = 'RowExclusiveLock')
