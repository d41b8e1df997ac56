SELECT set_config('idem.sealed', $1::text, true)
WHERE current_setting('idem.attempt', true) = $1::text
