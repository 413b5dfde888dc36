"""Second opinion on `loss_distribution`, by Google's dp-accounting, in floats. Needs the extra accounting.

No decision depends on it: it composes by Fourier transforms, whose last bits differ between CPUs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .loss_curve import LossCurve

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution


def accounting_distribution(curve: LossCurve, records: int) -> PrivacyLossDistribution:
    """Composes the joined worst-pair curve with dp-accounting, for the loss of all records of a unit, >= 1.

    Methods `get_epsilon_for_delta` and `get_delta_for_epsilon` of the result are the bounds. Raises ImportError if
    dp-accounting is not installed.
    """
    try:
        from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    except ImportError:
        raise ImportError("dp-accounting is not installed: pip install 'labeldp[accounting]'") from None
    step, above = float(curve.step), [float(delta) for delta in curve.deltas]
    below = [-math.expm1(-j * step) + math.exp(-j * step) * delta for j, delta in enumerate(above)]
    steps = len(above) - 1
    single = create_pmf_pessimistic_connect_dots_fixed_gap(step, -steps, steps, [*below[:0:-1], *above])
    return PrivacyLossDistribution(single).self_compose(records)
