"""Which studies can be served."""

from fedkoopman.config.study import Study
from fedkoopman.errors import InputError


def check_servable(study: Study, period: float = 0.0) -> None:
    """Refuse a study that sites on machines of their own cannot run.

    Arguments:
        period: seconds from one slot to the next; 0 for as soon as possible.
    """
    if study.scheme != "kf-fedkl":
        raise InputError(
            f'scheme is "{study.scheme}", which is for comparisons on one machine: serve '
            '"kf-fedkl", or use fedkoopman run'
        )
    if study.system.unknown:
        raise InputError(
            f"system.unknown names {', '.join(study.system.unknown)}, which serve does not "
            "estimate: estimate them with fedkoopman run, write what it finds into "
            "system.parameters, and leave out system.unknown"
        )
    if study.recordings.train:
        raise InputError(
            "recordings.train is given, but served sites bring their own data: leave it out"
        )
    if study.sites.arrivals == "live" and not period:
        raise InputError(
            'sites.arrivals is "live" and the period is 0, so that slots would pass before data '
            "arrive: give seconds per slot by --period"
        )
