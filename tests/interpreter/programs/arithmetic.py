"""Arithmetic on leaves, operators in every form."""

from interpreter.programs.registry import program


@program((7, 3), (-7, 3), (7.5, -2), (True, 2), (2**70, 3))
def all_binary_operators(a, b):
    results = [a + b, a - b, a * b, a / b, a // b, a % b, a**b, divmod(a, b)]
    return results


@program((12, 10), (True, False), (-5, 3))
def bit_operators(a, b):
    return a & b, a | b, a ^ b, ~a, a << 2, a >> 1


@program((5,), (-5,), (2.5,), (3 + 4j,), (True,))
def unary_operators(a):
    return -a, +a, abs(a), not a


@program((10,), (10.0,))
def inplace_operators(a):
    a += 3
    a -= 1
    a *= 2
    a /= 3
    a //= 1
    a **= 2
    a %= 7
    return a


@program((0b1100,))
def inplace_bit_operators(a):
    a &= 0b1010
    a |= 0b0001
    a ^= 0b1111
    a <<= 3
    a >>= 1
    return a


@program((1, 0), (1.0, 0), (0, 0))
def division_by_zero(a, b):
    return a / b


@program((1, "a"), ("a", 1), ([], {}), (None, 1), ("x", None))
def unsupported_operands(a, b):
    return a + b


@program((1, "a"), ([1], 2.5), ({}, 1))
def unsupported_inplace(a, b):
    a -= b
    return a


@program(("a",), ([],), (None,))
def unsupported_unary(a):
    return -a


@program(("ab", 3), (3, "ab"), ([1, 2], 2), (2, (1,)), (b"x", 4))
def repetition(a, b):
    return a * b


@program(("ab", "cd"), ([1], [2]), ((1,), (2,)), (b"a", b"b"))
def concatenation(a, b):
    return a + b


@program((3, 4, 5), (2, -1, 7))
def power_with_modulus(a, b, c):
    return pow(a, b, c)


@program((3.7,), (-3.7,), (2.5,), (1234.5678,))
def rounding(a):
    return round(a), round(a, 1), round(a, -2), int(a), float(a), complex(a)


@program((10, 3))
def compound_expression(a, b):
    return (a + b) * (a - b) // (b or 1) + -a % b ** (b - 1) if a > b else a


@program((2, 3))
def matrix_product_of_numbers(a, b):
    return a @ b


@program(("%s is %d and %.2f", ("x", 3, 2.5)), ("%(a)s", {"a": 1}), ("%d", "x"))
def percent_formatting(a, b):
    return a % b


@program()
def large_integers():
    return 2**200, -(2**100) // 7, (1 << 90) - 1, 10**30 % 97


@program()
def float_specials():
    inf = float("inf")
    nan = float("nan")
    return inf, -inf, nan != nan, inf > 1e308, nan == nan, 0.1 + 0.2


@program((5,))
def chained_assignment(a):
    x = y = z = a + 1
    x += 1
    return x, y, z


@program(("12",), ("x",), (b"7",), ([],))
def int_conversion(text):
    return int(text)


@program(("1e3",), ("abc",), (None,))
def float_conversion(text):
    return float(text)
