-- What an earlier user of the connection has left in the session.
DISCARD TEMP;
CLOSE ALL;
SELECT pg_advisory_unlock_all()
