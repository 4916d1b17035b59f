"""Linear layers with weights in 4 and 8 bits, by bitsandbytes."""

from thunder_bnb.eight_bit import BitsAndBytesLinearQuant8bit
from thunder_bnb.four_bit import BitsAndBytesLinearQuant4bit
from thunder_bnb.operators import get_bitsandbytes_executor

#: the spelling of a published tutorial
get_bitsandbytes_exeucutor = get_bitsandbytes_executor

__all__ = [
    "BitsAndBytesLinearQuant4bit",
    "BitsAndBytesLinearQuant8bit",
    "get_bitsandbytes_executor",
    "get_bitsandbytes_exeucutor",
]
