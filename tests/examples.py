"""How many examples Hypothesis makes: a fifth of them in the default run, all in ``make check``."""

from hypothesis import HealthCheck, settings

FEW, ALL = "few", "all"
# How fast examples are made depends on the machine and on what else it does.
_SETTINGS = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(FEW, _SETTINGS, max_examples=20)
settings.register_profile(ALL, _SETTINGS, max_examples=100)


def examples(count: int) -> settings:
    """Decorate a property: `count` examples with ``--hypothesis-profile=all``, else a fifth."""
    is_all = settings.get_current_profile_name() == ALL
    return settings(max_examples=count if is_all else max(count // 5, 10))
