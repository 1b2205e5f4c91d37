package lua

// The syntax tree: what the parser hands to the compiler. Names are resolved
// while parsing; that a local is captured by an inner function is known only
// when its scope has ended, hence two passes.

type expr any

type (
	constExpr struct{ v Value }
	dotsExpr  struct{}
	localExpr struct{ l *local }
	upvalExpr struct {
		index int
		name  string
	}
	globalExpr struct {
		name *String
		line int
	}
	indexExpr struct {
		obj, key expr
		line     int
	}
	callExpr struct {
		fn     expr
		method *String // obj:method(…), fn being obj
		args   []expr
		line   int
	}
	funcExpr struct{ fs *funcState }
	binExpr  struct {
		op   binOp
		a, b expr
		line int
	}
	unExpr struct {
		op   token // '-', '#' or tkNot
		a    expr
		line int
	}
	parenExpr struct{ e expr } // cuts many values to one
	tableExpr struct {
		items []tableItem
		line  int
	}
)

// tableItem is a field of a constructor; key is nil for a positional one.
type tableItem struct{ key, val expr }

type stmt any

type (
	localStmt struct {
		vars []*local
		vals []expr
	}
	localFuncStmt struct {
		v  *local
		fn *funcExpr
	}
	assignStmt struct {
		targets []expr
		vals    []expr
	}
	callStmt  struct{ call *callExpr }
	doStmt    struct{ body []stmt }
	whileStmt struct {
		cond expr
		body []stmt
		line int
	}
	repeatStmt struct {
		body []stmt
		cond expr
		line int
	}
	ifStmt struct {
		conds  []expr
		blocks [][]stmt
		orElse []stmt
	}
	numForStmt struct {
		v                  *local
		start, limit, step expr
		body               []stmt
		line               int
	}
	genForStmt struct {
		vars []*local
		vals []expr
		body []stmt
		line int
	}
	returnStmt struct{ vals []expr }
	breakStmt  struct{}
)

// local is a local variable: a register of its function, which holds a *cell
// when an inner function refers to it.
type local struct {
	name     string
	slot     int
	captured bool
}

// upval says where a closure finds a variable of an outer function when it is
// made: a register of the function around it or one of that function's own.
type upval struct {
	name  string
	local *local
	index int
}

// funcState is a function being parsed, and then its syntax tree.
type funcState struct {
	parent  *funcState
	active  []*local
	names   map[string]int // how many locals in scope have a name, in all functions
	loops   int
	slots   int
	params  []*local
	arg     *local // Lua 5.0's table of extra arguments, when ... is not used
	vararg  bool
	upvals  []upval
	body    []stmt
	line    int
	isMain  bool
	lx      *lexer
	usesDot bool
}

type binOp int

const (
	opAdd binOp = iota
	opSub
	opMul
	opDiv
	opMod
	opPow
	opConcat
	opNe
	opEq
	opLt
	opLe
	opGt
	opGe
	opAnd
	opOr
)

// priorities are the left and right binding powers.
var priorities = [...][2]int{
	opAdd: {6, 6}, opSub: {6, 6}, opMul: {7, 7}, opDiv: {7, 7}, opMod: {7, 7},
	opPow: {10, 9}, opConcat: {5, 4},
	opNe: {3, 3}, opEq: {3, 3}, opLt: {3, 3}, opLe: {3, 3}, opGt: {3, 3}, opGe: {3, 3},
	opAnd: {2, 2}, opOr: {1, 1},
}

const unaryPriority = 8

var binOps = map[token]binOp{
	'+': opAdd, '-': opSub, '*': opMul, '/': opDiv, '%': opMod, '^': opPow, tkConcat: opConcat,
	tkNe: opNe, tkEq: opEq, '<': opLt, tkLe: opLe, '>': opGt, tkGe: opGe, tkAnd: opAnd, tkOr: opOr,
}
