"""Generators: send, throw, close, delegation, return values."""

import inspect

from interpreter.programs.registry import program


@program((4,))
def squares(n):
    def gen(n):
        for i in range(n):
            yield i * i

    return list(gen(n)), sum(gen(n)), [*gen(2)], dict(enumerate(gen(2))), max(gen(n))


@program()
def step_by_step():
    def gen():
        x = yield 1
        y = yield x + 1
        return x + y

    g = gen()
    out = [next(g), g.send(10)]
    try:
        g.send(5)
    except StopIteration as e:
        out.append(e.value)
    try:
        next(g)
    except StopIteration as e:
        out.append(e.value)
    return out


@program()
def send_to_fresh_generator():
    def gen():
        yield 1

    gen().send(5)


@program()
def throw_caught_and_uncaught():
    def gen():
        while True:
            try:
                yield 1
            except ValueError as e:
                yield str(e)

    g = gen()
    out = [next(g), g.throw(ValueError("a")), next(g)]
    try:
        g.throw(KeyError("b"))
    except KeyError as e:
        out.append(e.args)
    return out, list(g)


@program()
def throw_into_fresh_generator():
    def gen():
        try:
            yield 1
        except ValueError:
            yield "caught"

    g = gen()
    try:
        g.throw(ValueError("early"))
    except ValueError as e:
        return str(e), list(g)


@program()
def close_runs_finally():
    log = []

    def gen():
        try:
            yield 1
            yield 2
        finally:
            log.append("closed")

    g = gen()
    next(g)
    g.close()
    g.close()
    h = gen()
    h.close()
    return log, list(g)


@program()
def close_ignored():
    def gen():
        try:
            yield 1
        except GeneratorExit:
            yield 2

    g = gen()
    next(g)
    try:
        g.close()
    except RuntimeError as e:
        return str(e)


@program()
def yield_in_finally():
    def gen():
        try:
            yield 1
        finally:
            yield 2

    return list(gen())


@program()
def delegation():
    def inner():
        x = yield 1
        y = yield x
        return x, y

    def outer():
        r = yield from inner()
        yield r
        yield from [7, 8]
        s = yield from "ab"
        return s

    g = outer()
    return [next(g), g.send("x"), g.send("y"), *g]


@program()
def delegation_throw():
    log = []

    def inner():
        try:
            yield 1
        except ValueError:
            log.append("inner caught")
            yield 2
        return "done"

    def outer():
        r = yield from inner()
        log.append(r)
        yield 3

    g = outer()
    return [next(g), g.throw(ValueError), next(g)], log


@program()
def delegation_throw_ends_inner():
    def inner():
        try:
            yield 1
        except ValueError:
            return "value"

    def outer():
        r = yield from inner()
        yield r

    g = outer()
    next(g)
    return g.throw(ValueError)


@program()
def delegation_throw_uncaught():
    def inner():
        yield 1

    def outer():
        try:
            yield from inner()
        except KeyError as e:
            yield e.args

    g = outer()
    next(g)
    return g.throw(KeyError("k")), list(g)


@program()
def delegation_close():
    log = []

    def inner():
        try:
            yield 1
        finally:
            log.append("inner")

    def outer():
        try:
            yield from inner()
        finally:
            log.append("outer")

    g = outer()
    next(g)
    g.close()
    return log


@program()
def delegation_to_iterator_object():
    log = []

    class It:
        def __init__(self):
            self.n = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.n += 1
            if self.n > 2:
                raise StopIteration("end")
            return self.n

        def send(self, v):
            log.append(("send", v))
            return v

        def throw(self, e):
            log.append(("throw", repr(e)))
            return "thrown"

        def close(self):
            log.append("close")

    def gen():
        r = yield from It()
        return r

    g = gen()
    out = [next(g), g.send(5), g.throw(ValueError("x")), next(g)]
    h = gen()
    next(h)
    h.close()
    try:
        next(g)
    except StopIteration as e:
        out.append(e.value)
    return out, log


@program()
def delegation_throw_without_method():
    def gen():
        try:
            yield from iter([1, 2])
        except ValueError:
            yield "caught"

    g = gen()
    next(g)
    return g.throw(ValueError), list(g)


@program()
def send_through_iterator_without_send():
    def gen():
        yield from [1, 2]

    g = gen()
    next(g)
    g.send(3)


@program()
def stop_iteration_inside():
    def gen():
        yield 1
        raise StopIteration("inside")

    return list(gen())


@program()
def stop_iteration_from_next():
    def gen():
        yield next(iter([]))

    return list(gen())


@program()
def exception_in_generator():
    def gen():
        yield 1
        raise KeyError("x")

    g = gen()
    out = [next(g)]
    try:
        next(g)
    except KeyError as e:
        out.append(str(e))
    return out, list(g)


@program()
def running_generator():
    def gen():
        yield next(g)

    g = gen()
    next(g)


@program()
def states():
    def gen():
        yield 1

    g = gen()
    states = [inspect.getgeneratorstate(g)]
    next(g)
    states.append(inspect.getgeneratorstate(g))
    list(g)
    states.append(inspect.getgeneratorstate(g))
    return states, g.__name__, g.__qualname__, type(g).__name__


@program()
def infinite_and_islice():
    def count(n=0):
        while True:
            yield n
            n += 1

    out = []
    for x in count(5):
        if x > 8:
            break
        out.append(x)
    return out, [a for a, _ in zip(count(), range(3), strict=False)]


@program()
def pipeline():
    def numbers():
        yield from range(10)

    def evens(xs):
        for x in xs:
            if x % 2 == 0:
                yield x

    def doubled(xs):
        return (x * 2 for x in xs)

    return list(doubled(evens(numbers())))


@program(([3, [1, [4, [1]], 5], 9],))
def recursive_generator(tree):
    def walk(t):
        for x in t:
            if isinstance(x, list):
                yield from walk(x)
            else:
                yield x

    return list(walk(tree))


@program()
def context_of_exception_in_generator():
    def gen():
        try:
            yield 1
        except ValueError:
            raise KeyError("from value")  # noqa: B904

    g = gen()
    next(g)
    g.throw(ValueError("v"))


@program()
def generator_handles_while_caller_handles():
    def gen():
        try:
            raise ValueError("inner")
        except ValueError:
            yield 1
            yield 2
        yield 3

    g = gen()
    out = []
    try:
        raise KeyError("outer")
    except KeyError:
        out.append(next(g))
    import sys

    out.append(sys.exc_info()[0])
    out.append(next(g))
    out.append(sys.exc_info()[0])
    try:
        raise TypeError("again")
    except TypeError as e:
        out.append(next(g))
        out.append(str(sys.exc_info()[1]))
        out.append(e.__context__)
    return out


@program()
def tee_by_hand():
    def producer():
        received = []
        try:
            while True:
                received.append((yield len(received)))
        except GeneratorExit:
            return
        finally:
            received.append("end")

    g = producer()
    return [next(g), g.send("a"), g.send("b")], g.close()


@program()
def generator_methods_on_class():
    class Tree:
        def __init__(self, v, kids=()):
            self.v = v
            self.kids = kids

        def __iter__(self):
            yield self.v
            for k in self.kids:
                yield from k

    return list(Tree(1, [Tree(2, [Tree(3)]), Tree(4)])), sum(Tree(1, [Tree(2)])), 3 in Tree(1, [Tree(3)])


@program()
def yield_expression_forms():
    def gen():
        a = [(yield 1), (yield 2)]
        b = {(yield 3): (yield 4)}
        return a, b, (yield)

    g = gen()
    out = [next(g)]
    for v in "abcd":
        out.append(g.send(v))
    try:
        g.send("e")
    except StopIteration as e:
        out.append(e.value)
    return out


@program()
def generator_with_arguments_and_closure():
    k = 3

    def gen(a, *b, c=1, **d):
        yield a, b, c, d, k

    return list(gen(1, 2, c=5, z=9)), list(gen(0))


@program()
def lambda_generator():
    g = (lambda: (yield 5))()
    return next(g), list(g)


@program()
def unpacking_generators():
    def gen():
        yield from (1, 2, 3)

    a, b, c = gen()
    d, *e = gen()
    (f,), *_ = [gen()][0:0] or [[9]]
    return a, b, c, d, e, f, [*gen(), *gen()], {*gen()}, (0, *gen())


@program()
def sum_adds_each_value_before_the_next_is_made():
    events = []

    class Value:
        def __radd__(self, other):
            events.append(("add", other))
            return self

    def gen():
        for i in range(3):
            events.append(("make", i))
            yield i if i < 1 else Value()

    sum(gen(), 5)
    return events, sum([]), sum([], 0.0), sum([0.1] * 10), sum((True, 2)), sum([[1], [2]], [])
