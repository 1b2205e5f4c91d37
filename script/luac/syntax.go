package luac

import (
	"errors"
	"fmt"
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

// parseError formats an error of the parser as Lua does. The parser only knows the
// position of the error, while Lua also knows what it expected. parseError derives
// the expected token from the tokens before the error. If these tokens do not
// determine the expected token, the text is Lua's "unexpected symbol near".
func (t *tokenList) parseError(err error) string {
	var pe *parse.Error
	if !errors.As(err, &pe) {
		return fmt.Sprintf("%d: %s", t.lines, err)
	}
	i := len(t.list)
	line := t.lines
	if pe.Pos.Line > 0 {
		for k, tok := range t.list {
			if tok.line == pe.Pos.Line && tok.col == pe.Pos.Column {
				i, line = k, tok.line
				break
			}
		}
	}
	if strings.HasPrefix(pe.Message, "ambiguous syntax") {
		return fmt.Sprintf("%d: %s near '('", line, pe.Message)
	}
	return fmt.Sprintf("%d: %s near '%s'", line, t.expected(i), t.near(i))
}

// opened is a construct that is not closed yet.
type opened struct {
	typ  int // token that opened the construct
	line int
}

// expected returns the text about the token that Lua expected instead of token
// i.
func (t *tokenList) expected(i int) string {
	if i == 0 {
		return "unexpected symbol"
	}
	prev := t.list[i-1].typ
	now := 0
	if i < len(t.list) {
		now = t.list[i].typ
	}
	switch {
	case prev == ',' && t.inParameters(i):
		return "<name> or '...' expected"
	case needsExpr(prev):
		return "unexpected symbol"
	case prev == parse.TReturn && i < len(t.list) && !closes(now):
		return "unexpected symbol"
	case i > 1 && t.list[i-2].typ == ':' && prev == parse.TIdent:
		return "function arguments expected"
	case prev == ')' && now == '=':
		if t.callAlone(i - 1) {
			return "unexpected symbol"
		}
		return "syntax error"
	case prev == parse.TFunction || prev == '.' || prev == ':' || prev == parse.TFor || prev == parse.TLocal ||
		prev == parse.TGoto:
		if prev == parse.TFunction && t.anonymous(i-1) {
			return "'(' expected"
		}
		return "'<name>' expected"
	}
	open := t.open(i)
	in := opened{}
	if len(open) > 0 {
		in = open[len(open)-1]
	}
	switch in.typ {
	case '(', '[', '{':
		closer := map[int]string{'(': ")", '[': "]", '{': "}"}[in.typ]
		if in.line != t.lineOf(i) {
			return fmt.Sprintf("'%s' expected (to close '%c' at line %d)", closer, in.typ, in.line)
		}
		return "'" + closer + "' expected"
	}
	if word := t.pending(i); word != "" {
		return "'" + word + "' expected"
	}
	if t.nameAlone(i) && now != '=' && now != ',' {
		return "'=' expected"
	}
	if i == len(t.list) || now == 0 || closes(now) || t.afterLast(i) {
		switch in.typ {
		case 0:
			return "'<eof>' expected"
		case parse.TRepeat:
			return t.closing("until", "repeat", in, i)
		case parse.TIf, parse.TElse, parse.TElseIf:
			return t.closing("end", "if", in, i)
		case parse.TFunction:
			return t.closing("end", "function", in, i)
		case parse.TWhile:
			return t.closing("end", "while", in, i)
		case parse.TFor:
			return t.closing("end", "for", in, i)
		case parse.TDo:
			return t.closing("end", "do", in, i)
		}
	}
	return "unexpected symbol"
}

func (t *tokenList) closing(word, what string, in opened, i int) string {
	if in.line == t.lineOf(i) {
		return "'" + word + "' expected"
	}
	return fmt.Sprintf("'%s' expected (to close '%s' at line %d)", word, what, in.line)
}

func (t *tokenList) lineOf(i int) int {
	if i < len(t.list) {
		return t.list[i].line
	}
	return t.lines
}

// needsExpr reports whether a token is followed by an expression. After some of
// these tokens, a name or a closing token may follow instead.
func needsExpr(typ int) bool {
	switch typ {
	case '=', ',', '+', '-', '*', '/', '%', '^', '#', '<', '>', '(', '[', '{', parse.TNot, parse.TAnd,
		parse.TOr, parse.T2Comma,
		parse.TEqeq, parse.TNeq, parse.TLte, parse.TGte, parse.TIf, parse.TElseIf, parse.TWhile,
		parse.TUntil, parse.TIn:
		return true
	}
	return false
}

func closes(typ int) bool {
	switch typ {
	case parse.TEnd, parse.TElse, parse.TElseIf, parse.TUntil:
		return true
	}
	return false
}

// anonymous reports whether the function at i has no name.
func (t *tokenList) anonymous(i int) bool {
	if i == 0 {
		return false
	}
	prev := t.list[i-1].typ
	return needsExpr(prev) || prev == parse.TReturn
}

// open returns the constructs that are not closed before token i.
func (t *tokenList) open(i int) []opened {
	var stack []opened
	pop := func(types ...int) {
		if n := len(stack); n > 0 {
			for _, typ := range types {
				if stack[n-1].typ == typ {
					stack = stack[:n-1]
					return
				}
			}
		}
	}
	for k := 0; k < i; k++ {
		tok := t.list[k]
		switch tok.typ {
		case '(', '[', '{', parse.TFunction, parse.TIf, parse.TWhile, parse.TFor, parse.TRepeat:
			stack = append(stack, opened{tok.typ, tok.line})
		case parse.TDo:
			if n := len(stack); n == 0 || stack[n-1].typ != parse.TWhile && stack[n-1].typ != parse.TFor ||
				t.hasDo(stack[n-1], k) {
				stack = append(stack, opened{tok.typ, tok.line})
			}
		case ')':
			pop('(')
		case ']':
			pop('[')
		case '}':
			pop('{')
		case parse.TUntil:
			pop(parse.TRepeat)
		case parse.TEnd:
			pop(parse.TFunction, parse.TIf, parse.TWhile, parse.TFor, parse.TDo)
		}
	}
	return stack
}

// hasDo reports whether the do of a loop precedes token k. The parameter
// named in describes the loop.
func (t *tokenList) hasDo(in opened, k int) bool {
	depth := 0
	for k--; k >= 0; k-- {
		switch tok := t.list[k]; tok.typ {
		case parse.TEnd, parse.TUntil:
			depth++
		case parse.TDo:
			if depth == 0 {
				return true
			}
		case parse.TFunction, parse.TIf, parse.TRepeat:
			depth--
		case parse.TWhile, parse.TFor:
			if tok.typ == in.typ && tok.line == in.line && depth <= 0 {
				return false
			}
			depth--
		}
	}
	return false
}

// pending returns the token that is still missing from the condition, the loop
// head or the function head before token i: then, do, in, a comma or a
// parenthesis. For the token after the name of a loop variable, the text names
// both = and in.
func (t *tokenList) pending(i int) string {
	for k := i - 1; k >= 0; k-- {
		switch t.list[k].typ {
		case parse.TIf, parse.TElseIf:
			return "then"
		case parse.TWhile:
			return "do"
		case parse.TFor:
			if k == i-2 {
				return "=' or 'in"
			}
			for _, tok := range t.list[k:i] {
				if tok.typ == parse.TIn || tok.typ == '=' {
					if tok.typ == '=' && !t.hasComma(k, i) {
						return ","
					}
					return "do"
				}
			}
			return "in"
		case parse.TThen, parse.TDo, parse.TEnd, parse.TElse, parse.TRepeat, parse.TUntil, parse.TLocal,
			parse.TReturn, ';':
			return ""
		case parse.TFunction:
			if k == i-2 || k == i-1 {
				return "("
			}
			return ""
		}
	}
	return ""
}

func (t *tokenList) hasComma(from, to int) bool {
	for _, tok := range t.list[from:to] {
		if tok.typ == ',' {
			return true
		}
	}
	return false
}

// nameAlone reports whether token i follows a variable that begins a statement.
func (t *tokenList) nameAlone(i int) bool {
	k := i - 1
	if k < 0 || t.list[k].typ != parse.TIdent && t.list[k].typ != ']' {
		return false
	}
	for k >= 0 {
		switch t.list[k].typ {
		case parse.TIdent, '.', ']', '[', parse.TString, parse.TNumber:
			k--
			if k >= 0 && t.list[k].typ == parse.TIdent && t.list[k+1].typ == parse.TIdent {
				return true
			}
			continue
		}
		break
	}
	if k < 0 {
		return true
	}
	switch t.list[k].typ {
	case parse.TThen, parse.TDo, parse.TElse, parse.TRepeat, parse.TEnd, ';', ')':
		return true
	}
	return false
}

// afterLast reports whether token i follows a return or break, after which a
// block has to end.
func (t *tokenList) afterLast(i int) bool {
	for k := i - 1; k >= 0; k-- {
		switch t.list[k].typ {
		case parse.TReturn, parse.TBreak:
			return true
		case parse.TThen, parse.TDo, parse.TEnd, parse.TElse, parse.TRepeat, parse.TUntil, parse.TLocal,
			parse.TFunction, ';', '=':
			return false
		}
	}
	return false
}

// inParameters reports whether token i is in the parameter list of a function.
func (t *tokenList) inParameters(i int) bool {
	for k := i - 1; k > 0; k-- {
		switch t.list[k].typ {
		case parse.TIdent, ',', parse.T3Comma:
			continue
		case '(':
			return t.list[k-1].typ == parse.TFunction || k > 1 && t.list[k-1].typ == parse.TIdent &&
				t.list[k-2].typ == parse.TFunction
		}
		return false
	}
	return false
}

// callAlone reports whether the parenthesis at i ends a call that begins a
// statement.
func (t *tokenList) callAlone(i int) bool {
	depth := 0
	for ; i >= 0; i-- {
		switch t.list[i].typ {
		case ')':
			depth++
		case '(':
			if depth--; depth == 0 {
				return i > 0 && t.list[i-1].typ == parse.TIdent && (i < 2 || t.list[i-2].typ != ',')
			}
		}
	}
	return false
}
