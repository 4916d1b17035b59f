"""Facts of operators, apart from their torch names: rows, primitives, promotion, layouts, gradient rules."""
