"""Quantization mechanisms: few outputs and no bias, under label DP."""

from .biased import biased_channel, biased_privacy_loss
from .exponential_selection import ERM
from .geometric import RQM
from .metric import metric_epsilon, metric_quantizer, vector_epsilon
from .mvu import MVU
from .optm import OPTM
from .quantizer import Quantizer
from .selection import Selection, channel, privacy_loss

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
