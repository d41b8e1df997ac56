-- What an earlier user of the connection has set for the session. Before BEGIN: none of it takes a snapshot, which would fix the isolation.
RESET SESSION AUTHORIZATION;
RESET ROLE;
RESET ALL;
UNLISTEN *;
