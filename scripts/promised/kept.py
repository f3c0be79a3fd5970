"""When a promise counts as kept."""

from promised.measure import PMD

SLACK_SHARE, SLACK_BYTES = 0.1, PMD


def is_off(value, least, most, spread=0):
    """Whether a value is too small for the least, or too large for the most that was promised: by more than a tenth,
    or two mebibytes if that is more. `spread` is how far starts without any remedy differ."""
    def slack(said):
        return max(SLACK_SHARE * said, SLACK_BYTES) + spread
    return not least - slack(least) <= value <= most + slack(most)
