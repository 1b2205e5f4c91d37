package luac

import (
	"errors"
	"fmt"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"

	"github.com/holdfast-kv/holdfast/cluster/yield"
	"github.com/holdfast-kv/holdfast/script/numeral"
)

// tokenList is a text as gopher-lua's scanner splits it into tokens. It
// provides information that the syntax tree does not contain, and it finds
// Lua's text for a syntax error.
type tokenList struct {
	list   []token
	lines  int    // number of the last line
	locals []bool // for each "local": whether "function" follows it
}

type token struct {
	typ       int
	text      string
	line, col int // position where the token ends, as parse.Error reports it
}

// maxTokens bounds the memory of the syntax tree: a node takes about 150 bytes.
const maxTokens = 100_000

// scan splits a text into tokens. The text of an error begins with the line number,
// without the name of the source.
func scan(text string, pace *yield.Pace) (*tokenList, error) {
	src := splitLines(text)
	t := &tokenList{lines: len(src)}
	sc := parse.NewScanner(&pacedReader{text, pace}, "")
	lx := &parse.Lexer{PrevTokenType: parse.TNil}
	for {
		tok, err := sc.Scan(lx)
		if err != nil {
			return nil, t.lexical(err, src)
		}
		if tok.Type < 0 {
			return t, nil
		}
		lx.PrevTokenType = tok.Type
		if tok.Type == parse.TNumber {
			if text := src.numeral(tok.Pos.Line, tok.Pos.Column); text != "" {
				if _, ok := numeral.Parse(text); !ok {
					return nil, fmt.Errorf("%d: malformed number near '%s'", tok.Pos.Line, text)
				}
			}
		}
		if n := len(t.list); n > 0 && t.list[n-1].typ == parse.TLocal {
			t.locals = append(t.locals, tok.Type == parse.TFunction)
		}
		if len(t.list) == maxTokens {
			return nil, fmt.Errorf("%d: chunk has too many syntax levels", tok.Pos.Line)
		}
		t.list = append(t.list, token{tok.Type, tokenText(tok), sc.Pos.Line, sc.Pos.Column})
	}
}

func tokenText(tok ast.Token) string {
	if tok.Str == "" && tok.Type < 128 {
		return string(rune(tok.Type))
	}
	return tok.Str
}

// lexical formats an error of the scanner as Lua does.
func (t *tokenList) lexical(err error, src sourceLines) error {
	var pe *parse.Error
	if !errors.As(err, &pe) {
		return fmt.Errorf("1: %w", err)
	}
	line := pe.Pos.Line
	if line < 1 {
		line = t.lines
	}
	near := pe.Token
	switch pe.Message {
	case "unterminated string":
		if pe.Pos.Line < 1 {
			return fmt.Errorf("%d: unfinished string near '<eof>'", line)
		}
		return fmt.Errorf("%d: unfinished string near '%s'", line-1, src.quote(line-1, near)+near)
	case "unterminated multiline string":
		return fmt.Errorf("%d: unfinished long string near '<eof>'", line)
	case "invalid multiline comment":
		return fmt.Errorf("%d: unfinished long comment near '<eof>'", line)
	case "invalid multiline string":
		return fmt.Errorf("%d: invalid long string delimiter near '%s'", line, src.delimiter(line))
	case "illegal hexadecimal number":
		return fmt.Errorf("%d: malformed number near '%s'", line, near)
	}
	expected := "unexpected symbol"
	if n := len(t.list); n > 0 && t.list[n-1].typ != parse.TReturn {
		expected = t.expected(n)
	}
	return fmt.Errorf("%d: %s near '%s'", line, expected, near)
}

// localFunction reports whether local statement n (from 0) is a local function.
func (t *tokenList) localFunction(n int) bool { return n < len(t.locals) && t.locals[n] }

// afterBreak returns the token after the first break on the given line. The
// caller has found that a break on this line is outside of any loop.
func (t *tokenList) afterBreak(line int) string {
	for i, tok := range t.list {
		if tok.typ == parse.TBreak && tok.line == line {
			return t.near(i + 1)
		}
	}
	return "<eof>"
}

func (t *tokenList) near(i int) string {
	if i >= len(t.list) {
		return "<eof>"
	}
	return t.list[i].text
}
