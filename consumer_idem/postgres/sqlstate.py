"""What PostgreSQL's error codes mean for a message. Codes: PostgreSQL manual, appendix A."""

from consumer_idem.ports import Fault

_INFRASTRUCTURE = frozenset(
    {
        "40001",  # serialization_failure
        "40P01",  # deadlock_detected
        "55P03",  # lock_not_available
        "25006",  # read_only_sql_transaction: a primary that was demoted
        "25P03",  # idle_in_transaction_session_timeout
        "25P04",  # transaction_timeout
        "57P01",  # admin_shutdown
        "57P02",  # crash_shutdown
        "57P03",  # cannot_connect_now
        "57P05",  # idle_session_timeout
    }
)
_INFRASTRUCTURE_CLASSES = ("08", "53", "58")

_UNKNOWN = frozenset({"57P01", "57P02", "57P03", "40003"})
_UNKNOWN_CLASSES = ("08", "53", "58", "XX")


def fault_of(sqlstate: str | None) -> Fault:
    """Return what an error with this code means for the messages of its transaction."""
    if sqlstate == "25P02":
        return Fault.ABORTED
    if sqlstate is None or sqlstate in _INFRASTRUCTURE or sqlstate.startswith(_INFRASTRUCTURE_CLASSES):
        return Fault.INFRASTRUCTURE
    return Fault.STATEMENT


def commit_is_unknown(sqlstate: str | None) -> bool:
    """Tell whether COMMIT, answered with this error, may have committed all the same."""
    return sqlstate is None or sqlstate in _UNKNOWN or sqlstate.startswith(_UNKNOWN_CLASSES)
