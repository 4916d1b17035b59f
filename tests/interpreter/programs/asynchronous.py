"""Coroutines and asynchronous generators, driven by hand and by asyncio."""

import asyncio
import contextlib
import inspect
import types

from interpreter.programs.registry import program


class Suspend:
    """Awaiting it hands a value to whoever drives the coroutine."""

    def __init__(self, value):
        self.value = value

    def __await__(self):
        return (yield self.value)


def drive(coro, *answers):
    """Runs a coroutine by hand: what it yields, and what it returns."""
    out = []
    answers = list(answers)
    try:
        value = coro.send(None)
        while True:
            out.append(value)
            value = coro.send(answers.pop(0) if answers else None)
    except StopIteration as e:
        out.append(("returned", e.value))
    return out


@program()
def by_hand():
    async def inner(x):
        y = await Suspend(x)
        return y, x

    async def outer():
        a = await inner(1)
        b = await inner(2)
        return a, b

    return drive(outer(), "p", "q")


@program()
def throw_into_coroutine():
    log = []

    async def inner():
        try:
            await Suspend(1)
        except ValueError as e:
            log.append(str(e))
            return "recovered"
        finally:
            log.append("finally")

    async def outer():
        return await inner()

    c = outer()
    c.send(None)
    try:
        c.throw(ValueError("v"))
    except StopIteration as e:
        return e.value, log


@program()
def throw_uncaught():
    async def f():
        await Suspend(1)

    c = f()
    c.send(None)
    c.throw(KeyError("k"))


@program()
def close_coroutine():
    log = []

    async def f():
        try:
            await Suspend(1)
        finally:
            log.append("closed")

    c = f()
    c.send(None)
    c.close()
    return log


@program()
def awaiting_twice():
    async def f():
        return 1

    async def g():
        c = f()
        return await c, await c

    try:
        g().send(None)
    except RuntimeError as e:
        return str(e)


@program((3,), (None,))
def awaiting_nonsense(x):
    async def f():
        await x

    f().send(None)


@program()
def bad_await_methods():
    class NotIterator:
        def __await__(self):
            return 5

    class IsCoroutine:
        def __await__(self):
            async def f():
                pass

            c = f()
            c.close()
            return c

    out = []
    for kind in (NotIterator, IsCoroutine):

        async def f(kind=kind):
            await kind()

        try:
            f().send(None)
        except TypeError as e:
            out.append(str(e))
    return out


@program()
def stop_iteration_in_coroutine():
    async def f():
        raise StopIteration(3)

    f().send(None)


@program()
def types_coroutine():
    @types.coroutine
    def gen(x):
        y = yield x
        return y

    async def f():
        return await gen(5)

    return drive(f(), "answer"), inspect.isawaitable(gen(1))


@program()
def yield_from_coroutine_refused():
    async def c():
        pass

    def g(x):
        yield from x

    coro = c()
    try:
        next(g(coro))
    except TypeError as e:
        coro.close()
        return str(e)


@program()
def asyncio_run():
    log = []

    async def work(name, n):
        for i in range(n):
            log.append((name, i))
            await asyncio.sleep(0)
        return name * n

    async def main():
        results = await asyncio.gather(work("a", 2), work("b", 3))
        task = asyncio.create_task(work("c", 1))
        return results, await task

    return asyncio.run(main()), log


@program()
def asyncio_errors_and_timeouts():
    async def fail():
        await asyncio.sleep(0)
        raise ValueError("v")

    async def main():
        out = await asyncio.gather(fail(), asyncio.sleep(0, "ok"), return_exceptions=True)
        try:
            await asyncio.wait_for(asyncio.sleep(5), timeout=0.01)
        except TimeoutError:
            out.append("timeout")
        return [repr(o) for o in out]

    return asyncio.run(main())


@program()
def asyncio_task_group():
    async def fail(x):
        raise x

    async def main():
        out = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail(ValueError("v")))
                group.create_task(asyncio.sleep(0))
        except* ValueError as e:
            out.append(repr(e.exceptions))
        return out

    return asyncio.run(main())


@program()
def asyncio_queue_and_cancel():
    async def producer(q):
        for i in range(3):
            await q.put(i)
        await q.put(None)

    async def consumer(q):
        out = []
        while (item := await q.get()) is not None:
            out.append(item)
        return out

    async def forever(log):
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            log.append("cancelled")
            raise

    async def main():
        q = asyncio.Queue(1)
        _, got = await asyncio.gather(producer(q), consumer(q))
        log = []
        t = asyncio.create_task(forever(log))
        await asyncio.sleep(0)
        t.cancel()
        try:
            await t
        except asyncio.CancelledError:
            log.append("seen")
        return got, log

    return asyncio.run(main())


@program()
def async_generator():
    async def gen(n):
        for i in range(n):
            await Suspend(("wait", i))
            yield i * 10

    async def main():
        out = []
        async for x in gen(3):
            out.append(x)
        else:
            out.append("else")
        return out, [x async for x in gen(2)], {x: 1 async for x in gen(2) if x}

    return drive(main())


@program()
def async_generator_send_throw_close():
    log = []

    async def gen():
        try:
            x = yield 1
            log.append(x)
            try:
                yield 2
            except ValueError as e:
                log.append(str(e))
                yield 3
        finally:
            await Suspend("cleaning")
            log.append("finally")

    async def main():
        g = gen()
        out = [await g.__anext__(), await g.asend("sent"), await g.athrow(ValueError("v"))]
        await g.aclose()
        try:
            await g.__anext__()
        except StopAsyncIteration:
            out.append("stopped")
        return out

    return drive(main()), log


@program()
def async_generator_raises_stop():
    async def gen():
        yield 1
        raise StopAsyncIteration

    async def main():
        return [x async for x in gen()]

    drive(main())


@program()
def async_iterator_class():
    class Count:
        def __init__(self, n):
            self.n = n

        def __aiter__(self):
            return self

        async def __anext__(self):
            if not self.n:
                raise StopAsyncIteration
            self.n -= 1
            await Suspend(self.n)
            return self.n

    async def main():
        out = []
        async for x in Count(5):
            if x == 3:
                continue
            if x == 1:
                break
            out.append(x)
        return out

    return drive(main())


@program((5,), ([],))
def async_for_over_nonsense(x):
    async def main():
        async for _ in x:
            pass

    drive(main())


@program()
def async_for_bad_iterators():
    class A:
        def __aiter__(self):
            return 5

    class B:
        def __aiter__(self):
            return self

        def __anext__(self):
            return 5

    out = []
    for kind in (A, B):

        async def main(kind=kind):
            async for _ in kind():
                pass

        try:
            drive(main())
        except TypeError as e:
            out.append((str(e), repr(e.__cause__)))
    return out


@program()
def async_with():
    log = []

    class M:
        def __init__(self, suppress):
            self.suppress = suppress

        async def __aenter__(self):
            log.append(await Suspend("enter"))
            return self

        async def __aexit__(self, kind, value, tb):
            log.append((kind and kind.__name__, await Suspend("exit")))
            return self.suppress

    async def main():
        async with M(False) as a, M(True):
            log.append(type(a).__name__)
            raise ValueError("v")
        async with M(False):
            return "returned"

    return drive(main(), *"abcdef"), log


@program()
def async_with_errors():
    class NoExit:
        async def __aenter__(self):
            pass

    class BadEnter:
        def __aenter__(self):
            return 5

        async def __aexit__(self, *a):
            pass

    out = []
    for manager in (3, NoExit(), BadEnter()):

        async def main(manager=manager):
            async with manager:
                pass

        try:
            drive(main())
        except TypeError as e:
            out.append(str(e))
    return out


@program()
def async_context_manager_function():
    log = []

    @contextlib.asynccontextmanager
    async def manager():
        log.append("in")
        try:
            yield 5
        except ValueError:
            log.append("caught")
        finally:
            log.append("out")

    async def main():
        async with manager() as x:
            log.append(x)
            raise ValueError
        async with contextlib.AsyncExitStack() as stack:
            log.append(await stack.enter_async_context(manager()))

    drive(main())
    return log


@program()
def async_comprehensions():
    async def agen():
        for i in range(4):
            yield i

    async def double(x):
        return x * 2

    async def main():
        return (
            [await double(x) async for x in agen() if x % 2],
            {await double(x) for x in (1, 2)},
            [[y async for y in agen()][x] for x in range(2)],
            [x async for x in (z async for z in agen() if z)],
            sum([await double(x) for x in range(3)]),
        )

    return drive(main())


@program()
def exceptions_across_await():
    async def inner():
        try:
            raise KeyError("k")
        except KeyError:
            await Suspend(1)
            raise ValueError("v")  # noqa: B904

    async def outer():
        await inner()

    drive(outer())


@program()
def names_and_states():
    async def f():
        await Suspend(1)

    c = f()
    out = [
        c.__name__,
        c.__qualname__,
        type(c).__name__,
        inspect.getcoroutinestate(c),
        inspect.iscoroutinefunction(f),
    ]
    c.send(None)
    out.append(inspect.getcoroutinestate(c))
    c.close()
    out.append(inspect.getcoroutinestate(c))
    return out


@program()
def await_in_expressions():
    async def v(x):
        return x

    async def main():
        d = {"a": await v(1), **(await v({"b": 2}))}
        return (
            f"{await v(3)}",
            (await v([1, 2]))[await v(1)],
            await v(1) + await v(2),
            d,
            [await v(x) for x in range(2)],
        )

    return drive(main())


@program()
def async_lambda_and_methods():
    class C:
        async def m(self):
            return "m"

        @classmethod
        async def c(cls):
            return cls.__name__

    f = lambda x: x.m()  # noqa: E731
    return drive(f(C())), drive(C.c())
