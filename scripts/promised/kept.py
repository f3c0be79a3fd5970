"""When a promise counts as kept."""

from promised.measure import PMD

SLACK_SHARE, SLACK_BYTES = 0.1, PMD


def is_off(value, least, most, spread=0):
    """Whether a value is below the promised least, or above the promised most, by more than a
    tenth, or by two mebibytes if that is more. `spread` is the variation between starts without
    any remedy.
    """
    def slack(said):
        return max(SLACK_SHARE * said, SLACK_BYTES) + spread
    return not least - slack(least) <= value <= most + slack(most)
