package script

import "math"

var mathLib = []entry{
	math1("abs", math.Abs), math1("acos", math.Acos), math1("asin", math.Asin), math2("atan2", math.Atan2),
	math1("atan", math.Atan), math1("ceil", math.Ceil), math1("cosh", math.Cosh), math1("cos", math.Cos),
	math1("deg", func(x float64) float64 { return x / (math.Pi / 180) }), math1("exp", math.Exp),
	math1("floor", math.Floor), math2("fmod", math.Mod), {name: "frexp", fn: mathFrexp}, {name: "ldexp", fn: mathLdexp},
	math1("log10", log10), math1("log", math.Log), {name: "max", fn: mathMax}, {name: "min", fn: mathMin},
	{name: "modf", fn: mathModf}, math2("pow", math.Pow),
	math1("rad", func(x float64) float64 { return x * (math.Pi / 180) }), {name: "random", fn: mathRandom},
	{name: "randomseed", fn: mathRandomSeed}, math1("sinh", math.Sinh), math1("sin", math.Sin),
	math1("sqrt", math.Sqrt), math1("tanh", math.Tanh), math1("tan", math.Tan),
}

// log10 is exact for powers of ten, as C's is. Scripts use it to count digits.
func log10(x float64) float64 {
	y := math.Log10(x)
	if n := math.Round(y); math.Abs(n) <= 308 && math.Pow10(int(n)) == x {
		return n
	}
	return y
}

func math1(name string, f func(float64) float64) entry {
	return entry{name: name, fn: func(st *State, args []Value) []Value {
		return st.Ret(Number(f(st.CheckNumber(args, 1))))
	}}
}

func math2(name string, f func(a, b float64) float64) entry {
	return entry{name: name, fn: func(st *State, args []Value) []Value {
		// Check the second argument first. The C code evaluates the arguments in
		// this order, as its error texts show.
		b := st.CheckNumber(args, 2)
		a := st.CheckNumber(args, 1)
		return st.Ret(Number(f(a, b)))
	}}
}

func mathFrexp(st *State, args []Value) []Value {
	frac, exp := math.Frexp(st.CheckNumber(args, 1))
	return []Value{Number(frac), Int(exp)}
}

func mathLdexp(st *State, args []Value) []Value {
	x := st.CheckNumber(args, 1)
	return st.Ret(Number(math.Ldexp(x, st.CheckInt(args, 2))))
}

func mathMax(st *State, args []Value) []Value {
	most := st.CheckNumber(args, 1)
	for i := 2; i <= len(args); i++ {
		if f := st.CheckNumber(args, i); f > most {
			most = f
		}
	}
	return st.Ret(Number(most))
}

func mathMin(st *State, args []Value) []Value {
	least := st.CheckNumber(args, 1)
	for i := 2; i <= len(args); i++ {
		if f := st.CheckNumber(args, i); f < least {
			least = f
		}
	}
	return st.Ret(Number(least))
}

func mathModf(st *State, args []Value) []Value {
	x := st.CheckNumber(args, 1)
	whole, frac := math.Modf(x)
	if math.IsInf(x, 0) {
		frac = math.Copysign(0, x)
	}
	return []Value{Number(whole), Number(frac)}
}

func mathRandom(st *State, args []Value) []Value {
	r := st.random.float()
	switch len(args) {
	case 0:
		return st.Ret(Number(r))
	case 1:
		high := st.CheckInt(args, 1)
		if high < 1 {
			st.ArgError(1, "interval is empty")
		}
		return st.Ret(Number(math.Floor(r*float64(high)) + 1))
	case 2:
		low, high := st.CheckInt(args, 1), st.CheckInt(args, 2)
		if low > high {
			st.ArgError(2, "interval is empty")
		}
		return st.Ret(Number(math.Floor(r*float64(high-low+1)) + float64(low)))
	}
	st.Errorf("wrong number of arguments")
	return nil
}

func mathRandomSeed(st *State, args []Value) []Value {
	st.random.Seed(int32(st.CheckInt(args, 1)))
	return nil
}
