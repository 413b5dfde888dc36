"""Quantization mechanisms: few outputs and no bias, under label DP."""

from .biased_selection import biased_channel, biased_privacy_loss
from .bin_selection import Selection, channel, privacy_loss
from .erm import ERM
from .metric_dp import metric_epsilon, metric_quantizer, vector_epsilon
from .mvu import MVU
from .optm import OPTM
from .quantizer import Quantizer
from .rqm import RQM

__all__ = [
    "ERM",
    "MVU",
    "OPTM",
    "RQM",
    "Quantizer",
    "Selection",
    "biased_channel",
    "biased_privacy_loss",
    "channel",
    "metric_epsilon",
    "metric_quantizer",
    "privacy_loss",
    "vector_epsilon",
]
