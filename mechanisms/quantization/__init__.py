"""Quantization mechanisms: few outputs and no bias, under label DP."""

from .erm import ERM
from .mvu import MVU
from .optm import OPTM
from .quantizer import Quantizer
from .rqm import RQM

__all__ = ["ERM", "MVU", "OPTM", "RQM", "Quantizer"]
